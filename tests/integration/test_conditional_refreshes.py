"""Refreshes that find the value unchanged, through the reader, the worker's flow and a real Redis."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from api_client import EntryState, RefreshFailed, get_cached, invalidate_tags
from api_client.transport.redis_py import connect
from refresher import UNCHANGED, Previous, Result
from refresher.embedded import RedisServer
from refresher.flow.outcome import OutcomeKind
from refresher.testing import InlineCache

pytestmark = pytest.mark.usefixtures("published_once")

LONG = "a text that takes more room when it is not compressed, again and again. " * 200


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


@pytest.mark.parametrize("value", ["short", LONG, None, {"rows": [1, 2.5, b"x"]}], ids=["short", "long", "none", "map"])
def test_an_unchanged_value_is_served_as_it_was(cache: InlineCache, value: Any) -> None:
    def unchanged(previous: Previous | None) -> Any:
        assert previous is None or previous.value == value
        return UNCHANGED if previous else value

    cache.answer("kept", unchanged, ttl="1m", grace="1h", conditional=True)
    for _ in range(4):
        assert get_cached("kept") == value
        cache.advance("61s")
    entry = cache.client.get_entry("kept")
    assert (entry.value, entry.state) == (value, EntryState.STALE)
    assert cache.client.get_entry("kept").state is EntryState.FRESH
    assert kinds(cache) == [OutcomeKind.COMMITTED, *[OutcomeKind.UNCHANGED] * 4]


def test_an_unchanged_value_keeps_its_tags_and_can_be_invalidated_by_them(cache: InlineCache) -> None:
    cache.answer(
        "tagged", lambda previous: UNCHANGED if previous else "value", ttl="1m", grace="1h", conditional=True,
        tags=lambda value: [f"is:{value}"],
    )  # fmt: skip
    for _ in range(3):
        get_cached("tagged")
        cache.advance("61s")
    get_cached("tagged")
    assert cache.client.get_entry("tagged").state is EntryState.FRESH
    assert invalidate_tags(["is:value"]).entries == 1
    assert cache.client.get_entry("tagged").state is EntryState.STALE


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
    client = connect(redis_server.url(), timeout_seconds=5)

    def checked(previous: Previous | None) -> Any:
        if previous:
            client.delete(cache.client.key("checked").entry)
        return UNCHANGED if previous else "loaded"

    cache.answer("checked", checked, ttl="1m", grace="1h", conditional=True)
    get_cached("checked")
    cache.advance("61s")
    assert get_cached("checked") == "loaded"
    assert kinds(cache) == [OutcomeKind.COMMITTED, OutcomeKind.RETRY, OutcomeKind.COMMITTED]
    assert cache.outcomes[1].why == "previous_gone"
    assert get_cached("checked") == "loaded"


def test_unchanged_without_a_previous_value_is_a_result_error(cache: InlineCache) -> None:
    cache.answer("wrong", UNCHANGED, ttl="1m", grace="1h")
    with pytest.raises(RefreshFailed) as caught:
        get_cached("wrong")
    assert caught.value.kind == "result"


def test_previous_is_refused_as_a_param(cache: InlineCache) -> None:
    cache.answer("checked", lambda previous: "value", ttl="1m", grace="1h", conditional=True)
    with pytest.raises(RefreshFailed) as caught:
        get_cached("checked", {"previous": 1})
    assert caught.value.kind == "wrong_params"
