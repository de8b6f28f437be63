"""An application's own Celery app, with the refresh task installed, whose tasks read from the cache."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

from celery import Celery

import refresher
from api_client import aget_cached, default_client, get_cached
from tests.support.scripted_queries import control_redis

app = Celery("host")
app.conf.update(broker_url=os.environ["CACHE_BROKER_URL"], task_default_queue="host.work", worker_prefetch_multiplier=1)


def _report(label: str, said: object) -> None:
    with control_redis() as control:
        control.rpush("said", json.dumps([label, said]))


@app.task(name="host.read")  # type: ignore[untyped-decorator, unused-ignore]
def read(query: str, params: dict[str, Any], how: str = "sync") -> None:
    """Read, and report the value or the error's type."""
    label = str(next(iter(params.values()), query))
    with control_redis() as control:
        control.rpush("began", label)
    try:
        match how:
            case "sync":
                said = get_cached(query, params)
            case "async":
                said = asyncio.run(aget_cached(query, params))
            case "many":
                (one,) = default_client().get_many([(query, params)])
                said = getattr(one, "value", repr(one))
    except Exception as error:
        _report(label, type(error).__name__)
        raise
    _report(label, said)


refresher.install(app)
