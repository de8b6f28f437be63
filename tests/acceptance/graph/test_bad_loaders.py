"""Loaders that hang, end their process or return too much: the worker lives, and other keys go on."""

from __future__ import annotations

import psutil
import pytest

from api_client import RefreshFailed
from tests.acceptance.graph.conftest import POOLS, Watched
from tests.support.bad_loaders import HUGE_BYTES
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

SHORT_BUDGET = {"CACHE_XFETCH_TIMEOUT": "200ms"}  # the soft limit is 5 s later, the hard one 15 s
QUERY = "misbehaves"


def test_a_load_that_kills_its_process_is_tried_once_more_and_then_given_up(watched: Watched) -> None:
    worker = watched.start(CACHE_COOLING="5m")
    for count, misdeed in enumerate(("exits", "kills itself"), start=1):
        watched.fresh(QUERY, misdeed)
        watched.let(misdeed, misdeed)
        watched.client.invalidate(QUERY, {"key": misdeed})
        watched.client.get_entry(QUERY, {"key": misdeed})
        eventually(lambda: watched.count_of("failed: worker_lost") == count, "it is given up")  # noqa: B023
        assert watched.system.loads(misdeed) == 3
        assert watched.count_of("retried: worker_lost") == count
        eventually(lambda: watched.system.cache.zcard("cache:dead1") == count, "its dead letter is there")  # noqa: B023
        # Stale, and left alone while it cools, whoever reads it; other keys are loaded by new processes.
        for number in range(10):
            assert watched.client.get(QUERY, {"key": misdeed})["load"] == 1
            watched.fresh(QUERY, f"other than {misdeed} {number}")
        assert watched.system.loads(misdeed) == 3
        watched.let(misdeed, None)
        watched.client.refresh(QUERY, {"key": misdeed}, wait=True)
        assert watched.client.get(QUERY, {"key": misdeed})["load"] == 4
    assert worker.poll() is None


def test_a_killed_process_is_a_failed_attempt_and_no_more(watched: Watched) -> None:
    worker = watched.start()
    watched.fresh(QUERY, "a")
    watched.let("a", "kills itself")
    token = watched.stale(QUERY, "a")
    eventually(lambda: watched.count_of("retried: worker_lost"), "the first attempt has died")
    watched.let("a", None)
    watched.goes_on(worker, QUERY, "a", token)
    assert watched.count_of("failed: worker_lost") == 0


@pytest.mark.parametrize(("pool", "kind"), [("prefork", "timeout"), ("threads", "hard_timeout")])
def test_a_load_that_never_returns_is_ended_and_tried_again(watched: Watched, pool: str, kind: str) -> None:
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


def test_what_no_soft_limit_ends_the_hard_one_does_and_somebody_is_told(watched: Watched) -> None:
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
def test_a_load_that_returns_far_too_much_or_calls_sys_exit_fails_for_good_and_leaves_nothing_behind(
    watched: Watched, pool: str
) -> None:
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


def test_what_passes_in_a_cluster_is_retried_until_it_has(watched: Watched) -> None:
    worker = watched.start()
    kinds = {"deadlock": "deadlock", "not a leader": "transient", "leader gone": "graph_unavailable"}
    for misdeed, kind in kinds.items():
        watched.fresh(QUERY, misdeed)
        watched.let(misdeed, misdeed)
        token = watched.stale(QUERY, misdeed)
        eventually(lambda: watched.count_of(f"retried: {kind}") >= 2, "it is tried again")  # noqa: B023
        watched.let(misdeed, None)
        watched.goes_on(worker, QUERY, misdeed, token)
