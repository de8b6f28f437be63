"""A Celery worker of the host's own whose tasks read the cache."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery

from tests.acceptance.hosts.application import Application, Report
from tests.acceptance.hosts.table import BROKER
from tests.support.waiting import MAX_WAIT_SECONDS

application = Application()
app: Any = Celery("host", broker=os.environ[BROKER], backend=os.environ[BROKER])
app.conf.worker_proc_alive_timeout = MAX_WAIT_SECONDS


@app.task(name="host.use")
def use() -> Report:
    """Use the cache."""
    return application.use()


@app.task(name="host.close")
def close() -> Report:
    """Close its client."""
    return application.close()
