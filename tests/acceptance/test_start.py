"""A worker that starts while something is wrong: it logs what, and comes up as soon as it can."""

from __future__ import annotations

import re

from refresher.embedded import free_port
from tests.acceptance.conftest import System
from tests.support.waiting import eventually

SECRET = "canary-5c2592d9"


def test_a_worker_starts_without_cache_and_graph_and_logs_both(system: System) -> None:
    worker = system.start_worker(
        NEO4J_URI=f"bolt://127.0.0.1:{free_port()}",
        CACHE_REDIS_URL=f"redis://:{SECRET}@127.0.0.1:{free_port()}/0",
    )
    said = worker.tail_of_log(10_000)
    assert "the cache at CACHE_REDIS_URL=redis://:***@127.0.0.1:" in said
    assert "the graph at NEO4J_URI=bolt://127.0.0.1:" in said
    assert SECRET not in said


def test_a_worker_that_starts_before_its_broker_consumes_once_it_is_there(system: System) -> None:
    system.redis_server.kill()
    worker = system.start_worker(ready=False)
    eventually(lambda: "Trying again in" in worker.tail_of_log(10_000), "it says that it tries again")
    system.redis_server.restart(keep_data=False)
    assert eventually(lambda: system.client().get("long_lived", {"key": "a"}, timeout=2, default=None), "it consumes")


def test_a_worker_without_registered_queries_logs_an_error(system: System) -> None:
    worker = system.start_worker(REFRESHER_QUERIES="")
    banner, _, logged = worker.tail_of_log(10_000).partition("[tasks]")
    assert re.search(r"^\[[^]]+: ERROR/MainProcess\] no query is registered: ", logged, re.MULTILINE)
    assert "no query is registered" not in banner
