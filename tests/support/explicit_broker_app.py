"""An app whose settings name another broker than CACHE_BROKER_URL."""

from __future__ import annotations

import os

from refresher import make_app
from refresher.settings import WorkerSettings

BROKER = "TEST_BROKER_OF_SETTINGS"

if BROKER in os.environ:
    app = make_app(WorkerSettings.from_env({**os.environ, "CACHE_BROKER_URL": os.environ[BROKER]}))
