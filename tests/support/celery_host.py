"""A host application with a Celery app of its own that reads the cache as well; prints the state of its own Celery.

Usage: ``python -m tests.support.celery_host ORDER HOST_BROKER_URL REDIS_URL BROKER_URL``, the last two the cache's.
ORDER is the one that is used first: ``host``, ``client``, or ``between``: the host holds a connection meanwhile;
``worker``: the application makes the workers' app, and installs the refresh task in its own. With
DJANGO_SETTINGS_MODULE set Celery treats it as a Django project.
"""

from __future__ import annotations

import json
import sys
import threading
from contextlib import ExitStack
from typing import Any

from celery import Celery, _state, shared_task

import refresher
from api_client import CacheClient, ReaderSettings
from refresher import WorkerSettings
from tests.support.patience import publish_patiently
from tests.support.waiting import MAX_WAIT_SECONDS

HOST_LIMIT = 10


@shared_task(name="host.shared")  # type: ignore[untyped-decorator, unused-ignore]
def shared(word: str) -> str:
    """Do nothing, in no worker."""
    return word


def make_host(url: str) -> Celery:
    """Return the application's own app, as its module would make it."""
    app = Celery("host", broker=url)
    app.conf.broker_transport_options = {"socket_timeout": 5}
    app.set_default()
    return app


def connections(app: Celery) -> int:
    """Return how many connections the application can hold at once."""
    with ExitStack() as stack:
        try:
            for _ in range(HOST_LIMIT):
                stack.enter_context(app.pool.acquire(block=True, timeout=0.1))
        except app.pool.LimitExceeded:
            pass
        return len(app.pool._dirty)


def publish_from_another_thread() -> None:
    """Send the shared task, as a thread of the application would, in which no app is current."""
    thread = threading.Thread(target=lambda: shared.apply_async(("hello",), queue="host.shared"))
    thread.start()
    thread.join()


def read_in_a_thread(client: CacheClient) -> None:
    """Publish twice: from the client's own thread, and from one of the application's."""
    client.get("q", {"n": 1}, default=None, timeout=0)  # a longer wait may publish again
    client.flush(MAX_WAIT_SECONDS)
    client.refresh("q", {"n": 2})


def run(order: str, url: str, redis_url: str, broker_url: str) -> dict[str, Any]:
    """Use the application's own Celery and the cache's client in ``order``; return what the application finds."""
    publish_patiently()
    found: dict[str, Any] = {}
    settings = ReaderSettings(redis_url=redis_url, broker_url=broker_url, redis_timeout_seconds=20)
    with CacheClient(settings) as client, ExitStack() as stack:
        if order in {"client", "worker"}:
            if order == "client":
                read_in_a_thread(client)
            else:
                refresher.make_app(WorkerSettings(redis_url=redis_url, broker_url=broker_url)).finalize()
            found["default_before_the_host"] = getattr(_state.default_app, "main", None)
            found["current_before_the_host"] = getattr(_state._tls.current_app, "main", None)
            app = make_host(url)
            if order == "worker":
                refresher.install(app, WorkerSettings(redis_url=redis_url, broker_url=url))
        else:
            app = make_host(url)
            connections(app)
            if order == "between":
                stack.enter_context(app.pool.acquire())
                stack.enter_context(app.producer_pool.acquire())
            producers = app.producer_pool
            read_in_a_thread(client)
            found["same_producers"] = app.producer_pool is producers
    found["connections"] = connections(app)
    found["default"] = getattr(_state.default_app, "main", None)
    found["current"] = getattr(_state._tls.current_app, "main", None)
    publish_from_another_thread()
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(*sys.argv[1:])))
