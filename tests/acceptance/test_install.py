"""The refresh task in a worker of an application's own Celery app."""

from __future__ import annotations

from celery import Celery

from tests.acceptance.conftest import System
from tests.support.waiting import eventually


def test_a_worker_of_an_application_runs_its_tasks_and_refreshes(system: System) -> None:
    worker = system.start_worker("-c", "1", app="tests.support.host_app", C_FORCE_ROOT="1")  # it accepts pickle
    with Celery("publisher", broker=system.env["CACHE_BROKER_URL"], set_as_current=False) as publisher:
        # As the application sends it: pickled, with callbacks, to its default queue.
        mark = publisher.signature("host.mark", ("first",), serializer="pickle", queue="host.work")
        mark.apply_async(link=publisher.signature("host.mark", ("second",), immutable=True, serializer="pickle"))
        eventually(lambda: system.control.lrange("host", 0, -1) == ["first", "second"], "both have run")

        client = system.client()
        assert client.get("long_lived", {"key": "a"})["load"] == 1
        # A retry goes through the app's broker and back, past the guard.
        system.control.rpush("script:b", *["fail"] * 3)
        assert client.get("long_lived", {"key": "b"})["load"] == 4

        publisher.send_task("refresher.refresh", args=(), kwargs={"key": "x"}, queue="host.work")
        publisher.send_task("host.no_such_task", queue="host.work", serializer="json")
        assert client.get("long_lived", {"key": "c"})["load"] == 1
    eventually(lambda: "its arguments are not one" in worker.tail_of_log(10_000), "the guard is there, for ours")
    eventually(lambda: "unregistered task" in worker.tail_of_log(10_000), "the rest is left to Celery")
    assert worker.poll() is None
