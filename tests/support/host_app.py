"""An application's own Celery app, with the refresh task installed: its own task leaves a mark that a test sees."""

from __future__ import annotations

import os

import redis
from celery import Celery

import refresher
from tests.support.scripted_queries import CONTROL_URL

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
    """Tell the test that the application's own task has run."""
    with redis.Redis.from_url(os.environ[CONTROL_URL]) as control:
        control.rpush("host", word)


refresher.install(app)
