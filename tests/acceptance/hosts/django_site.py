"""A Django project with a Celery app of its own, made before the library is imported, or after it was used."""

from __future__ import annotations

import os

from celery import Celery
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path

from tests.acceptance.hosts.table import CELERY_APP


def make_app() -> Celery:
    """Return the project's app."""
    app = Celery("site")
    app.config_from_object("django.conf:settings", namespace="CELERY")
    return app


if os.environ[CELERY_APP] == "first":
    app = make_app()

from tests.acceptance.hosts.application import Application  # noqa: E402

host = Application()
if os.environ[CELERY_APP] == "last":
    host.use()
    app = make_app()
    host.watch_anew()


def use(_: HttpRequest) -> JsonResponse:
    """Use the cache, and the project's Celery."""
    with app.producer_pool.acquire():
        return JsonResponse(host.use())


def close(_: HttpRequest) -> JsonResponse:
    """Close the cache's client."""
    return JsonResponse(host.close())


urlpatterns = [path("use", use), path("close", close)]
wsgi = get_wsgi_application()
