"""`refresher.testing`, used as an application's tests would use it."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from api_client import CacheUnavailable, Entry, EntryState, RefreshFailed, UnknownQuery, aget_cached, get_cached
from api_client import default as default_client
from refresher import TransientFailure, WorkerSettings
from refresher.flow.outcome import OutcomeKind
from refresher.testing import InlineCache
from tests.support.internals import connections_of, reading_link_of

pytestmark = pytest.mark.usefixtures("published_once")


@dataclass(frozen=True, slots=True)
class Application:
    """How an application reads: sync, or on an event loop."""

    read: Callable[..., Any]
    do: Callable[[Any], Any]
    """Return what a call returns, awaited where it has to be."""
    client_of: Callable[[InlineCache], Any]

    def cached(self, *args: Any, **options: Any) -> Any:
        return self.do(self.read(*args, **options))

    def entry(self, cache: InlineCache, *args: Any, **options: Any) -> Entry[Any]:
        entry: Entry[Any] = self.do(self.client_of(cache).get_entry(*args, **options))
        return entry

    def invalidate(self, cache: InlineCache, *args: Any, **options: Any) -> None:
        self.do(self.client_of(cache).invalidate(*args, **options))


@pytest.fixture(autouse=True)
def _no_lease_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no lease of a cache end by time, however busy the machine."""
    monkeypatch.setattr(
        "refresher.testing.WorkerSettings", partial(WorkerSettings, lease_floor_ms=3_600_000, budget_seconds=3_600)
    )


@pytest.fixture(params=["sync", "async"])
def app(request: pytest.FixtureRequest) -> Iterator[Application]:
    if request.param == "sync":
        yield Application(get_cached, lambda value: value, lambda cache: cache.client)
        return
    with asyncio.Runner() as runner:
        yield Application(aget_cached, runner.run, lambda cache: cache.async_client)


@pytest.mark.promise(
    "Contract and operation", "`refresher.testing` runs the real reader and flow in one process, on the test's clock"
)
def test_a_stale_value_is_served_at_once_and_the_next_read_has_the_new_one(app: Application) -> None:
    with InlineCache() as cache:
        cache.answer("friends_of", lambda person_id: ["Ada", "Grace"], ttl="5m", grace="1h")
        assert app.cached("friends_of", {"person_id": 42}) == ["Ada", "Grace"]

        cache.answer("friends_of", lambda person_id: ["Ada"], ttl="5m", grace="1h")
        assert app.cached("friends_of", {"person_id": 42}) == ["Ada", "Grace"]
        cache.advance("6m")
        stale = app.entry(cache, "friends_of", {"person_id": 42})
        assert (stale.value, stale.state) == (["Ada", "Grace"], EntryState.STALE)
        assert app.cached("friends_of", {"person_id": 42}) == ["Ada"]


def test_past_the_grace_the_value_is_gone_and_the_read_waits(app: Application) -> None:
    with InlineCache() as cache:
        cache.answer("now", 1, ttl="1m", grace="1m")
        assert app.cached("now") == 1
        cache.answer("now", 2, ttl="1m", grace="1m")
        cache.advance("2m1s")
        entry = app.entry(cache, "now")
        assert (entry.value, entry.state) == (2, EntryState.MISS)


def test_an_answer_may_take_any_params(app: Application) -> None:
    with InlineCache() as cache:
        cache.answer("anything", lambda **_: 1)
        cache.answer("value", 2)
        cache.answer("builtin", dict)
        params = {"tx": 1, "_": 2}
        assert [app.cached(name, params) for name in ("anything", "value", "builtin")] == [1, 2, params]


@pytest.mark.promise("Reading", "With a TTL of 0 each read has a value loaded for it")
def test_a_ttl_of_zero_is_computed_for_every_read(app: Application) -> None:
    calls = iter(range(10))
    with InlineCache() as cache:
        cache.answer("uncached", lambda: next(calls), ttl=0)
        assert [app.cached("uncached") for _ in range(3)] == [0, 1, 2]


def test_a_failing_load_is_retried_then_reported_and_the_stale_value_stays(app: Application) -> None:
    def fails() -> None:
        raise TransientFailure("the graph is tired")

    with InlineCache() as cache:
        cache.answer("q", "old", ttl="1m", grace="1h")
        app.cached("q")
        cache.answer("q", fails, ttl="1m", grace="1h")
        cache.advance("2m")
        assert app.cached("q") == "old"
        assert app.cached("q") == "old"
        assert cache.outcomes[-1].kind is OutcomeKind.FAILED
        app.invalidate(cache, "q", hard=True)
        with pytest.raises(RefreshFailed, match="transient") as caught:
            app.cached("q")
        assert (caught.value.kind, caught.value.attempts) == ("transient", 4)


def test_a_failure_carries_the_text_and_the_exception_of_the_loader(app: Application) -> None:
    with InlineCache() as cache:
        cache.answer("q", lambda n: {}[n])
        cache.answer("odd", object)
        for _ in range(2):  # its load, and the pause after it
            with pytest.raises(RefreshFailed, match=r"\(loader_error\) .*: KeyError: 'missing'$") as caught:
                app.cached("q", {"n": "missing"})
            assert isinstance(caught.value.__cause__, KeyError)
        client = app.client_of(cache)
        (failed,) = app.do(client.get_many([("q", {"n": "other"})]))
        assert str(failed.__cause__) == "'other'"
        with pytest.raises(RefreshFailed, match="KeyError: 'missing'") as caught:
            app.do(client.refresh("q", {"n": "missing"}, wait=True))
        assert isinstance(caught.value.__cause__, KeyError)
        with pytest.raises(RefreshFailed, match="the value of 'odd' can't be encoded") as caught:
            app.cached("odd")
        assert caught.value.__cause__ is None


def test_advancing_the_time_ends_the_backoff_after_a_failure(app: Application) -> None:
    def fails() -> None:
        raise TypeError("a mistake")

    with InlineCache() as cache:
        cache.answer("q", "old", ttl="1m", grace="1d")
        app.cached("q")
        cache.answer("q", fails, ttl="1m", grace="1d")
        cache.advance("2m")
        assert app.cached("q") == "old"
        assert cache.outcomes[-1].kind is OutcomeKind.FAILED
        cache.answer("q", "new", ttl="1m", grace="1d")
        assert [app.cached("q"), app.cached("q")] == ["old", "old"]  # during the backoff
        cache.advance("1m")
        assert [app.cached("q"), app.cached("q")] == ["old", "new"]


def test_an_unknown_query_raises_or_returns_the_default(app: Application) -> None:
    with InlineCache():
        with pytest.raises(UnknownQuery, match="no worker has registered the query 'nobody_knows'"):
            app.cached("nobody_knows")
        assert app.cached("nobody_knows", default=None) is None


def test_the_default_clients_are_restored_after_the_block() -> None:
    before, async_before = default_client.use_as_default(None), default_client.use_as_async_default(None)
    try:
        with InlineCache() as cache:
            assert default_client.default_client() is cache.client
            assert default_client.default_async_client() is cache.async_client
        assert default_client.use_as_default(None) is None
        assert default_client.use_as_async_default(None) is None
    finally:
        default_client.use_as_default(before)
        default_client.use_as_async_default(async_before)


def test_a_client_used_after_its_block_raises_that_it_is_closed(app: Application) -> None:
    with InlineCache() as cache:
        cache.answer("q", 1)
    with pytest.raises(CacheUnavailable, match="the client is closed"):
        app.entry(cache, "q")


def test_two_caches_do_not_see_each_other() -> None:
    with InlineCache() as first, InlineCache() as second:
        first.answer("q", "first")
        second.answer("q", "second")
        assert (first.client.get("q"), second.client.get("q")) == ("first", "second")


async def test_an_async_test_can_enter_the_cache_on_its_own_event_loop() -> None:
    async with InlineCache() as cache:
        cache.answer("friends_of", lambda person_id: ["Ada", "Grace"], ttl="5m", grace="1h")
        assert await aget_cached("friends_of", {"person_id": 42}) == ["Ada", "Grace"]
        cache.answer("friends_of", lambda person_id: ["Ada"], ttl="5m", grace="1h")
        cache.advance("6m")
        assert await aget_cached("friends_of", {"person_id": 42}) == ["Ada", "Grace"]
        # One cache: the refresh that one reader has triggered is seen by the other.
        assert get_cached("friends_of", {"person_id": 42}) == ["Ada"]
        assert len(cache.outcomes) == 2
    connection = connections_of(reading_link_of(cache.async_client)).current()
    assert connection is None


def test_refreshes_triggered_by_a_batch_are_done_when_it_returns(app: Application) -> None:
    with InlineCache() as cache:
        calls = [("a", None), ("b", None)]

        def values() -> list[Any]:
            return [entry.value for entry in app.do(app.client_of(cache).get_many(calls))]

        for generation in (1, 2):
            for name, _ in calls:
                cache.answer(name, generation, ttl="1m", grace="1h")
            assert values() == [1, 1]  # loaded; and then stale
            cache.advance("2m")
        assert values() == [2, 2]


def test_answers_may_be_built_on_other_answers(app: Application) -> None:
    with InlineCache() as cache:
        cache.answer("leaf", lambda n: n)
        cache.answer("tree", lambda: [get_cached("leaf", {"n": n}) for n in range(3)], ttl="5m", grace="1h")
        assert app.cached("tree") == [0, 1, 2]
        assert [outcome.query for outcome in cache.outcomes] == ["leaf", "leaf", "leaf", "tree"]
        cache.advance("6m")
        for n in range(3):
            cache.client.invalidate("leaf", {"n": n}, hard=True)
        assert app.cached("tree") == [0, 1, 2], "stale, at once"
        assert len(cache.outcomes) == 8, "the refresh has loaded the leaves again"


@pytest.mark.promise("Protocol", "Queries that read each other fail at once, with their chain")
def test_answers_that_read_each_other_fail_with_their_chain(app: Application) -> None:
    with InlineCache() as cache:
        cache.answer("egg", lambda: get_cached("hen"))
        cache.answer("hen", lambda: get_cached("egg"))
        with pytest.raises(RefreshFailed, match="egg → hen → egg") as caught:
            app.cached("egg")
        assert caught.value.kind == "cycle"


def test_an_interrupted_answer_interrupts_the_read() -> None:
    def interrupt() -> object:
        raise KeyboardInterrupt

    with InlineCache() as cache:
        cache.answer("q", interrupt)
        with pytest.raises(KeyboardInterrupt):
            get_cached("q")


def test_a_sync_read_that_waits_on_an_event_loop_s_thread_warns_once_per_place() -> None:
    async def read() -> list[int]:
        return [get_cached("q", {"n": n}) for n in range(3)]

    with InlineCache() as cache, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")  # as Python has it for warnings like this one
        cache.answer("q", lambda n: n)
        assert asyncio.run(read()) == [0, 1, 2]
        assert asyncio.run(read()) == [0, 1, 2], "hits"
    (warning,) = caught
    line = read.__code__.co_firstlineno + 1
    assert (warning.filename, warning.lineno) == (__file__, line)
    assert (warning.category, "aget_cached" in str(warning.message)) == (RuntimeWarning, True)


def test_a_sync_hit_on_an_event_loop_s_thread_does_not_warn(recwarn: pytest.WarningsRecorder) -> None:
    async def read() -> int:
        return int(get_cached("q"))

    with InlineCache() as cache:
        cache.answer("q", 1)
        assert get_cached("q") == 1
        assert asyncio.run(read()) == 1
    assert not recwarn.list


def test_a_sync_read_beside_a_loop_that_runs_no_task_does_not_warn(recwarn: pytest.WarningsRecorder) -> None:
    """As with Playwright's sync API, whose loop runs on the caller's thread."""

    async def read() -> int:
        loop = asyncio.get_running_loop()
        found: asyncio.Future[int] = loop.create_future()
        loop.call_soon(lambda: found.set_result(get_cached("q")))
        return int(await found)

    with InlineCache() as cache:
        cache.answer("q", 1)
        assert asyncio.run(read()) == 1
    assert not recwarn.list
