"""Reads inside workers: what they would wait for they load themselves, by the same flow as every refresh."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
from celery import Celery

from tests.acceptance.conftest import System
from tests.support.flower import PASSWORD, USER, Flower
from tests.support.processes import is_gone
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

APP: Final = "tests.support.reading_app"


class Host:
    """Sends tasks to an application's own worker, and hears what they say."""

    def __init__(self, system: System, publisher: Celery) -> None:
        self._system, self._publisher = system, publisher

    def read(self, query: str, how: str = "sync", **params: Any) -> None:
        self._publisher.send_task("host.read", (query, params, how), queue="host.work")

    def heard(self, count: int) -> dict[str, Any]:
        """Return what so many tasks have said."""
        eventually(lambda: self._system.control.llen("said") >= count, "the tasks have ended")
        return dict(map(json.loads, self._system.control.lrange("said", 0, -1)))


@pytest.fixture
def host(system: System) -> Iterator[Host]:
    system.env["REFRESHER_QUERIES"] = "tests.support.nested_queries"
    with Celery("publisher", broker=system.env["CACHE_BROKER_URL"], set_as_current=False) as publisher:
        yield Host(system, publisher)


def load_of(system: System, key: str, count: int = 1) -> int:
    """Return the process of the newest load of a key, once there have been ``count``."""
    eventually(lambda: system.loads(key) >= count, f"load {count} of {key} has begun")
    return int(system.control.lrange(f"calls:{key}", -1, -1)[0])


@pytest.mark.promise(
    "Protocol", "Tasks that hold all slots of their worker wait for what they read no longer than a load takes"
)
@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_tasks_that_hold_all_slots_of_their_worker_load_what_they_read(system: System, host: Host, pool: str) -> None:
    worker = system.start_worker("-c", "2", "-P", pool, app=APP)
    keys = [f"{how}-{number}" for number in range(6) for how in ("sync", "async", "many")]
    for key in keys:
        host.read("long_lived", key.partition("-")[0], key=key)
    assert host.heard(len(keys)) == {key: {"key": key, "load": 1} for key in keys}
    family = {worker.pid, *(child.pid for child in psutil.Process(worker.pid).children(recursive=True))}
    assert {load_of(system, key) for key in keys} <= family
    assert system.client().get("long_lived", {"key": keys[0]})["load"] == 1
    assert system.control.llen("order") == len(keys), "no read was loaded twice"


def test_a_lease_that_another_process_holds_is_waited_for(system: System, host: Host) -> None:
    system.start_worker("-c", "1")
    with ThreadPoolExecutor() as threads:
        read = threads.submit(system.client().get, "long_lived", {"key": "a", "hold": "gate"})
        loading = load_of(system, "a")
        system.start_worker("-c", "1", app=APP)
        host.read("long_lived", key="a", hold="gate")
        host.read("long_lived", key="b", hold="")
        eventually(lambda: system.control.lrange("began", 0, -1) == ["a"], "the first is under way")
        system.open_gate("gate")
        assert read.result(MAX_WAIT_SECONDS)["load"] == 1
    assert host.heard(2) == {"a": {"key": "a", "load": 1}, "b": {"key": "b", "load": 1}}
    assert load_of(system, "a") == loading


def test_a_worker_that_consumes_no_refresh_queue_leaves_loads_to_others(system: System, host: Host) -> None:
    refreshing = system.start_worker("-c", "1")
    system.start_worker("-c", "1", "-Q", "host.work", app=APP)
    host.read("long_lived", key="a")
    assert host.heard(1) == {"a": {"key": "a", "load": 1}}
    assert load_of(system, "a") in {child.pid for child in psutil.Process(refreshing.pid).children()}


@contextmanager
def loading_in_place(system: System, host: Host) -> Iterator[int]:
    """Yield the process of a worker's pool whose task loads key "a" in place; the load waits for its gate."""
    host.read("long_lived", key="a", hold="gate")
    yield load_of(system, "a")
    system.open_gate("gate", times=3)


def test_the_record_and_explain_show_a_load_in_place(system: System, host: Host) -> None:
    system.start_worker("-c", "1", app=APP)
    client = system.client()
    with loading_in_place(system, host):
        explained = str(client.explain("long_lived", {"key": "a", "hold": "gate"}))
    assert "(in place)" in explained
    host.heard(1)
    assert "(in place)" not in str(client.explain("long_lived", {"key": "a", "hold": "gate"}))


def test_a_task_s_soft_time_limit_hands_its_load_back_uncounted(system: System, host: Host) -> None:
    system.start_worker("-c", "2", app=APP)
    key = system.client().key("long_lived", {"key": "a", "hold": "gate"})
    with loading_in_place(system, host) as loading:
        os.kill(loading, signal.SIGUSR1)  # as Celery does at the limit, which a busy machine may reach before the load
        assert host.heard(1) == {"a": "SoftTimeLimitExceeded"}
        load_of(system, "a", count=2)
        assert "attempts" not in system.record(key), "no attempt has failed"
        assert "in_place" not in system.record(key), "a worker's own task loads it now"
    assert system.client().get("long_lived", {"key": "a", "hold": "gate"})["load"] == 2


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM], ids=["SIGKILL", "SIGTERM"])
def test_a_task_s_process_that_ends_leaves_a_load_that_counts_as_no_attempt(
    system: System, host: Host, end: signal.Signals
) -> None:
    system.start_worker("-c", "1", app=APP)
    key = system.client().key("long_lived", {"key": "a", "hold": "gate"})
    with loading_in_place(system, host) as loading:
        os.kill(loading, end)
        if end is signal.SIGKILL:  # of which nobody knows before its lease is over
            eventually(lambda: is_gone(loading), "it has ended")
            system.cache.hset(key.record, "until", system.now_us() - 1)
        with ThreadPoolExecutor() as threads:
            read = threads.submit(system.client().get, "long_lived", {"key": "a", "hold": "gate"})
            load_of(system, "a", count=2)
            assert "attempts" not in system.record(key)
            system.open_gate("gate", times=3)
            assert read.result(MAX_WAIT_SECONDS)["load"] == 2


def test_queries_built_on_queries_are_loaded_in_one_slot(system: System, host: Host) -> None:
    worker = system.start_worker("-c", "1")
    began = time.monotonic()
    leaves = [{"key": f"a-{n}", "load": 1} for n in range(6)]
    assert system.client().get("forest", {"key": "a"}) == [1, leaves]
    assert time.monotonic() - began < MAX_WAIT_SECONDS / 4, "no read has waited for a slot"
    eventually(lambda: "succeeded in" in worker.log_file.read_text(), "the task has ended")
    assert worker.log_file.read_text().count("succeeded in") == 1, "it has loaded all of them"
    assert system.client().get("tree", {"key": "a"}) == leaves
    assert system.control.llen("order") == 6


def test_flower_shows_a_load_in_place_as_what_it_is(system: System, host: Host, tmp_path: Path) -> None:
    flower = Flower(system.env, tmp_path, FLOWER_BASIC_AUTH=f"{USER}:{PASSWORD}")
    try:
        system.start_worker("-c", "1", "-E", app=APP)
        eventually(lambda: flower.sees("worker-1@test"), "Flower knows the worker")
        host.read("long_lived", key="a")
        host.read("egg")
        host.heard(2)

        def shown() -> dict[str, dict[str, Any]]:
            _, answer = flower.fetch("/api/tasks")
            return {task["name"]: task for task in json.loads(answer).values()}

        eventually(lambda: {"refresh long_lived", "refresh egg", "refresh hen"} <= shown().keys(), "it shows the loads")
        loaded, failed = shown()["refresh long_lived"], shown()["refresh egg"]
    finally:
        flower.process.kill()
    assert (loaded["state"], loaded["worker"]) == ("SUCCESS", "worker-1@test")
    assert loaded["result"].startswith("in place: committed (miss) long_lived")
    assert "miss" in loaded["args"]
    assert (failed["state"], failed["exception"]) == (
        "FAILURE",
        f"in place: failed (cycle) egg {key_of(system, 'egg')}",
    )


def key_of(system: System, query: str) -> str:
    return system.client().key(query).short
