"""A worker that starts while something is wrong: it logs what, and comes up as soon as it can."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from refresher.embedded import free_port
from tests.acceptance.conftest import ROOT, System
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

SECRET = "canary-5c2592d9"


def celery(system: System, *args: str, **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "celery", "-A", "refresher", *args],
        env={**system.env, **changes}, cwd=ROOT, capture_output=True, text=True, timeout=MAX_WAIT_SECONDS, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("CACHE_XFETCH_BETA", "0", "more than 0"),
        pytest.param("CACHE_XFETCH_TIMEOUT", "soon", "0.1 s to 1 h", marks=pytest.mark.long),
        pytest.param("TSPR_REFRESH_MODE", "clever", "topology_sensitive or plain", marks=pytest.mark.long),
        pytest.param("NEO4J_URI", f"http://neo4j:{SECRET}@localhost", "bolt://", marks=pytest.mark.long),
        ("NEO4J_URI", f"bolt://neo4j:{SECRET}@localhost", "NEO4J_PASSWORD"),
        ("CACHE_REDIS_URL", f"rediz://:{SECRET}@localhost", "redis://"),
        ("REFRESHER_QUERIES", "no_such_module", "importable modules"),
    ],
)
def test_an_invalid_setting_is_one_clear_error_and_no_worker_starts(
    system: System, variable: str, value: str, allowed: str
) -> None:
    done = celery(system, "worker", **{variable: value})
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert variable in said
    assert allowed in said
    assert SECRET not in said
    assert "Traceback" not in said


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
