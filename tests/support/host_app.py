"""An application's own Celery app, with the refresh task installed; its own task leaves a mark for a test."""

from __future__ import annotations

import os

from celery import Celery

import refresher
from tests.support.scripted_queries import control_redis

app = Celery("host")
app.conf.update(
    broker_url=os.environ["CACHE_BROKER_URL"],
    task_serializer="pickle",
    accept_content=["json", "pickle"],
    task_default_queue="host.work",
    worker_prefetch_multiplier=3,
)


@app.task(name="host.mark")  # type: ignore[untyped-decorator, unused-ignore]
def mark(word: str) -> None:
    """Record for the test that the application's own task has run."""
    with control_redis() as control:
        control.rpush("host", word)


refresher.install(app)
