"""Django's settings, as a project with Celery has them."""

from __future__ import annotations

import os

from tests.acceptance.hosts.table import BROKER

ALLOWED_HOSTS = ["127.0.0.1"]
CELERY_BROKER_URL = os.environ[BROKER]
ROOT_URLCONF = "tests.acceptance.hosts.django_site"
SECRET_KEY = "of a test"
