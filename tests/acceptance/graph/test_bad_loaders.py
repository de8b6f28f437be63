"""Loaders that hang, end their process or return too much: the worker survives, and other keys are loaded."""

from __future__ import annotations

import psutil
import pytest

from api_client import RefreshFailed
from tests.acceptance.graph.conftest import POOLS, Watched
from tests.support.bad_loaders import HUGE_BYTES
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

SHORT_BUDGET = {"CACHE_XFETCH_TIMEOUT": "5s"}  # and of the lease; the soft limit is 5 s later, the hard one 15 s
QUERY = "misbehaves"


def test_a_load_that_kills_its_process_is_retried_once_and_then_dead_lettered(watched: Watched) -> None:
    worker = watched.start(CACHE_COOLING="5m")
    for count, misdeed in enumerate(("exits", "kills itself"), start=1):
        watched.fresh(QUERY, misdeed)
        watched.let(misdeed, misdeed)
        watched.client.invalidate(QUERY, {"key": misdeed})
        watched.client.get_entry(QUERY, {"key": misdeed})
        eventually(lambda: watched.count_of("failed: worker_lost") == count, "it is abandoned")  # noqa: B023
        assert watched.system.loads(misdeed) == 3
        assert watched.count_of("retried: worker_lost") == count
        eventually(lambda: watched.system.cache.zcard("cache:dead1") == count, "its dead letter is there")  # noqa: B023
        # Stale, and not loaded during the backoff, however often it is read; new processes load other keys.
        for number in range(10):
            assert watched.client.get(QUERY, {"key": misdeed})["load"] == 1
            watched.fresh(QUERY, f"other than {misdeed} {number}")
        assert watched.system.loads(misdeed) == 3
        watched.let(misdeed, None)
        watched.client.refresh(QUERY, {"key": misdeed}, wait=True)
        assert watched.client.get(QUERY, {"key": misdeed})["load"] == 4
    assert worker.poll() is None


def test_a_load_whose_process_is_killed_once_is_retried_and_commits(watched: Watched) -> None:
    worker = watched.start()
    watched.fresh(QUERY, "a")
    watched.let("a", "kills itself")
    token = watched.stale(QUERY, "a")
    eventually(lambda: watched.count_of("retried: worker_lost"), "the first attempt has died")
    watched.let("a", None)
    watched.goes_on(worker, QUERY, "a", token)
    assert watched.count_of("failed: worker_lost") == 0


@pytest.mark.promise("Refreshing", "A load that hangs is ended and counted")
@pytest.mark.parametrize(("pool", "kind"), [("prefork", "timeout"), ("threads", "hard_timeout")])
def test_a_hanging_load_is_ended_at_its_time_limit_and_retried(watched: Watched, pool: str, kind: str) -> None:
    worker = watched.start(*POOLS[pool], "-c", "2", **SHORT_BUDGET)
    watched.fresh(QUERY, "a")
    watched.let("a", "hangs")
    token = watched.stale(QUERY, "a")
    eventually(lambda: watched.system.loads("a") == 2, "it hangs")
    watched.fresh(QUERY, "b")  # the other slot is free
    eventually(lambda: watched.count_of(f"retried: {kind}"), "it is counted")
    watched.let("a", None)
    if pool == "threads":
        assert worker.wait(MAX_WAIT_SECONDS) == 1
        worker = watched.start(*POOLS[pool], "-c", "2", **SHORT_BUDGET)
    watched.goes_on(worker, QUERY, "a", token)


def test_a_load_that_ignores_the_soft_limit_is_killed_at_the_hard_limit_and_retried(watched: Watched) -> None:
    worker = watched.start("-c", "2", **SHORT_BUDGET)
    watched.fresh(QUERY, "a")
    watched.let("a", "hangs deaf")
    token = watched.stale(QUERY, "a")
    eventually(lambda: watched.system.loads("a") == 2, "it hangs")
    (*_, pid) = watched.system.control.lrange("calls:a", 0, -1)
    watched.let("a", None)
    eventually(lambda: watched.count_of("retried: hard_timeout"), "its process was killed")
    eventually(lambda: not psutil.pid_exists(int(pid)), "it is gone")
    watched.goes_on(worker, QUERY, "a", token)


@pytest.mark.parametrize("pool", POOLS)
def test_an_oversized_value_or_sys_exit_fails_permanently_and_harms_no_other_load(watched: Watched, pool: str) -> None:
    worker = watched.start(*POOLS[pool], "-c", "1", CACHE_COOLING="5m")
    watched.fresh(QUERY, "b")
    (pid,) = {int(pid) for pid in watched.system.control.lrange("calls:b", 0, -1)}
    process = psutil.Process(pid)
    before = process.memory_info().rss
    watched.let("a", "huge")
    with pytest.raises(RefreshFailed) as caught:
        watched.client.get(QUERY, {"key": "a"})
    assert (caught.value.kind, caught.value.attempts) == ("too_large", 1)
    watched.fresh(QUERY, "c")
    assert process.memory_info().rss - before < HUGE_BYTES / 4

    watched.let("d", "calls sys.exit")
    with pytest.raises(RefreshFailed) as caught:
        watched.client.get(QUERY, {"key": "d"})
    assert (caught.value.kind, caught.value.attempts, watched.system.loads("d")) == ("loader_error", 1, 1)
    watched.fresh(QUERY, "e")
    assert process.is_running()
    assert worker.poll() is None


def test_transient_errors_of_a_graph_cluster_are_retried_until_they_pass(watched: Watched) -> None:
    worker = watched.start()
    kinds = {"deadlock": "deadlock", "not a leader": "transient", "leader gone": "graph_unavailable"}
    for misdeed, kind in kinds.items():
        watched.fresh(QUERY, misdeed)
        watched.let(misdeed, misdeed)
        token = watched.stale(QUERY, misdeed)
        eventually(lambda: watched.count_of(f"retried: {kind}") >= 2, "it is tried again")  # noqa: B023
        watched.let(misdeed, None)
        watched.goes_on(worker, QUERY, misdeed, token)
