"""Refreshes that find the value unchanged, through the reader, the worker's flow and a real Redis."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from api_client import EntryState, get_cached
from api_client.transport.redis_py import connect
from refresher import UNCHANGED, Previous, Result
from refresher.embedded import RedisServer
from refresher.flow.outcome import OutcomeKind
from refresher.testing import InlineCache
from tests.support.waiting import MAX_WAIT_SECONDS

pytestmark = pytest.mark.usefixtures("published_once")


def kinds(cache: InlineCache) -> list[OutcomeKind]:
    return [outcome.kind for outcome in cache.outcomes]


def test_a_conditional_loader_can_extend_the_previous_value(cache: InlineCache) -> None:
    posts, given = ["first"], []

    def posts_of(person_id: int, previous: Previous | None) -> Any:
        given.append(previous)
        seen = previous.version if previous else 0
        if previous and len(posts) == seen:
            return UNCHANGED
        return Result((previous.value if previous else []) + posts[seen:], version=len(posts))

    cache.answer("posts_of", posts_of, ttl="1m", grace="1h", conditional=True)
    values = []
    for new in ([], [], ["second"], []):
        posts += new
        cache.advance("61s")
        values.append((get_cached("posts_of", {"person_id": 1}), get_cached("posts_of", {"person_id": 1})))
    assert values == [
        (["first"], ["first"]), (["first"], ["first"]), (["first"], ["first", "second"]),
        (["first", "second"], ["first", "second"]),
    ]  # fmt: skip
    assert kinds(cache) == [
        OutcomeKind.COMMITTED, OutcomeKind.UNCHANGED, OutcomeKind.COMMITTED, OutcomeKind.UNCHANGED,
    ]  # fmt: skip
    assert [one and (one.value, one.version) for one in given] == [
        None, (["first"], 1), (["first"], 1), (["first", "second"], 2),
    ]  # fmt: skip
    assert datetime.now(UTC) - given[1].loaded_at > timedelta(seconds=60)


@pytest.mark.parametrize(
    ("hard", "ended", "left"),
    [(False, OutcomeKind.COMMITTED_AS_STALE, "load 1"), (True, OutcomeKind.REJECTED, "load 3")],
    ids=["soft", "hard"],
)
def test_an_invalidation_during_a_conditional_load_is_not_lost(
    cache: InlineCache, hard: bool, ended: OutcomeKind, left: str
) -> None:
    loads: list[bool] = []

    def checked(previous: Previous | None) -> Any:
        loads.append(previous is not None)
        if len(loads) == 2:
            cache.client.invalidate("checked", hard=hard)
        return UNCHANGED if previous else f"load {len(loads)}"

    cache.answer("checked", checked, ttl="1m", grace="1h", conditional=True)
    get_cached("checked")
    cache.advance("61s")
    get_cached("checked")
    assert cache.outcomes[-1].kind is ended, "the one within which the other went"
    assert loads == [False, True, not hard]
    assert (get_cached("checked"), cache.client.get_entry("checked").state) == (left, EntryState.FRESH)


def test_an_entry_evicted_during_a_conditional_load_is_loaded_in_full(
    cache: InlineCache, redis_server: RedisServer
) -> None:
    def checked(previous: Previous | None) -> Any:
        if previous:
            with connect(redis_server.url(), timeout_seconds=MAX_WAIT_SECONDS) as client:
                client.delete(cache.client.key("checked").entry)
        return UNCHANGED if previous else "loaded"

    cache.answer("checked", checked, ttl="1m", grace="1h", conditional=True)
    get_cached("checked")
    cache.advance("61s")
    assert get_cached("checked") == "loaded"
    assert kinds(cache) == [OutcomeKind.COMMITTED, OutcomeKind.RETRY, OutcomeKind.COMMITTED]
    assert cache.outcomes[1].why == "previous_gone"
    assert get_cached("checked") == "loaded"
