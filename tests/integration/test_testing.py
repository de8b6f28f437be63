"""`refresher.testing`, used as an application's tests would use it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from api_client import EntryState, RefreshFailed, UnknownQuery, default_client, get_cached
from refresher import TransientFailure
from refresher.outcome import OutcomeKind
from refresher.testing import InlineCache
from tests.support.waiting import eventually


def test_a_stale_value_is_served_at_once_and_the_next_read_has_the_new_one() -> None:
    with InlineCache() as cache:
        cache.answer("friends_of", lambda person_id: ["Ada", "Grace"], ttl="5m", grace="1h")
        assert get_cached("friends_of", {"person_id": 42}) == ["Ada", "Grace"]

        cache.answer("friends_of", lambda person_id: ["Ada"], ttl="5m", grace="1h")
        assert get_cached("friends_of", {"person_id": 42}) == ["Ada", "Grace"]
        cache.advance("6m")
        stale = cache.client.get_entry("friends_of", {"person_id": 42})
        assert (stale.value, stale.state) == (["Ada", "Grace"], EntryState.STALE)
        assert get_cached("friends_of", {"person_id": 42}) == ["Ada"]


def test_past_the_grace_the_value_is_gone_and_the_read_waits() -> None:
    with InlineCache() as cache:
        cache.answer("now", 1, ttl="1m", grace="1m")
        assert get_cached("now") == 1
        cache.answer("now", 2, ttl="1m", grace="1m")
        cache.advance("2m1s")
        entry = cache.client.get_entry("now")
        assert (entry.value, entry.state) == (2, EntryState.MISS)


def test_an_invalidated_value_is_stale_and_a_hard_one_gone() -> None:
    versions = iter(range(10))
    with InlineCache() as cache:
        cache.answer("version", lambda: next(versions))
        assert get_cached("version") == 0
        cache.client.invalidate("version")
        assert get_cached("version") == 0
        assert get_cached("version") == 1
        cache.client.invalidate("version", hard=True)
        assert get_cached("version") == 2


def test_a_ttl_of_zero_is_computed_for_every_read() -> None:
    calls = iter(range(10))
    with InlineCache() as cache:
        cache.answer("uncached", lambda: next(calls), ttl=0)
        assert [get_cached("uncached") for _ in range(3)] == [0, 1, 2]


def test_who_comes_while_an_uncached_value_is_loaded_gets_a_later_one() -> None:
    loading, go_on = threading.Event(), threading.Event()
    calls = iter(range(1, 10))

    def load() -> int:
        number = next(calls)
        if number == 1:
            loading.set()
            assert go_on.wait(10)
        return number

    with InlineCache() as cache, ThreadPoolExecutor(2) as pool:
        cache.answer("uncached", load, ttl=0)
        first = pool.submit(cache.client.get, "uncached")
        assert loading.wait(10)
        second = pool.submit(cache.client.get, "uncached")
        (flight,) = cache.client._reads._flights._flights.values()
        eventually(lambda: flight.done._cond._waiters, 10, "the second call shares the wait")
        go_on.set()
        assert first.result(20) == 1
        assert second.result(20) == 2


def test_a_failing_load_is_retried_and_then_told_while_the_stale_value_stays() -> None:
    def fails() -> None:
        raise TransientFailure("the graph is tired")

    with InlineCache() as cache:
        cache.answer("q", "old", ttl="1m")
        get_cached("q")
        cache.answer("q", fails, ttl="1m")
        cache.advance("2m")
        assert get_cached("q") == "old"
        assert get_cached("q") == "old"
        assert cache.outcomes[-1].kind is OutcomeKind.FAILED
        cache.client.invalidate("q", hard=True)
        with pytest.raises(RefreshFailed, match="transient") as caught:
            get_cached("q")
        assert (caught.value.kind, caught.value.attempts) == ("transient", 4)


def test_an_unknown_query_is_told_and_a_default_is_taken() -> None:
    with InlineCache():
        with pytest.raises(UnknownQuery, match="no worker has registered the query 'nobody_knows'"):
            get_cached("nobody_knows")
        assert get_cached("nobody_knows", default=None) is None


def test_the_default_client_is_as_before_afterwards() -> None:
    before = default_client.use_as_default(None)
    try:
        with InlineCache() as cache:
            assert default_client.default_client() is cache.client
        assert default_client.use_as_default(None) is None
    finally:
        default_client.use_as_default(before)


def test_two_caches_do_not_see_each_other() -> None:
    with InlineCache() as first, InlineCache() as second:
        first.answer("q", "first")
        second.answer("q", "second")
        assert (first.client.get("q"), second.client.get("q")) == ("first", "second")
