"""Many keys invalidated in one call: each in all its versions, in as many round trips as one."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from api_client import CacheUnavailable, EntryState, Invalidation, InvalidQuery, QueryCall
from api_client.protocol.live_versions import register
from api_client.transport.scripts import LeaseStore
from tests.integration.reader.conftest import NAMESPACE, MakeReader, NewKey
from tests.support.any_reader import AnyReader, client_of
from tests.support.internals import reading_link_of

CALLS = [("q", {"n": n}) for n in range(5)]


def store(new_key: NewKey, *versions: int) -> None:
    for version in versions:
        for query, params in CALLS:
            new_key(query, params, version).store_value(f"v{version}")


def states(reader: AnyReader, version: int) -> set[EntryState]:
    return {reader.get_entry(query, params, version=version).state for query, params in CALLS}


def test_invalidate_many_makes_every_key_stale_in_every_version(
    reader: AnyReader, new_key: NewKey, control: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in (1, 2):
        LeaseStore(control).run(register(NAMESPACE, "q", version, lives_seconds=1_000))
    store(new_key, 1, 2)
    link, rounds = reading_link_of(client_of(reader)), list[int]()
    run_each = link.run_each
    monkeypatch.setattr(link, "run_each", lambda calls: rounds.append(len(calls)) or run_each(calls))
    done = reader.invalidate_many(CALLS)
    assert rounds == [5 + 1, 5], "the versions are read once, and what is new of them is a second round trip"
    assert [one.generations.keys() for one in done if isinstance(one, Invalidation)] == [{1, 2}] * 5
    rounds.clear()
    reader.invalidate_many(CALLS)
    assert rounds == [10 + 1]
    assert states(reader, 1) == states(reader, 2) == {EntryState.STALE}


def test_a_hard_invalidate_many_drops_entries_and_handles_a_repeated_key_once(
    reader: AnyReader, new_key: NewKey
) -> None:
    store(new_key, 1)
    first, *others = reader.invalidate_many([*CALLS, CALLS[0]], hard=True)
    assert [new_key(query, params).entry() for query, params in CALLS] == [None] * 5
    assert first == others[-1]


def test_an_invalid_item_of_invalidate_many_is_an_error_of_its_own(reader: AnyReader, new_key: NewKey) -> None:
    store(new_key, 1)
    calls: list[Any] = [CALLS[0], ("no name", {}), QueryCall("q", {"n": 1}, 3), "q", CALLS[2]]
    first, wrong_name, of_version_3, no_pair, last = reader.invalidate_many(calls)
    assert isinstance(wrong_name, InvalidQuery)
    assert isinstance(no_pair, InvalidQuery)
    assert isinstance(of_version_3, Invalidation)
    assert of_version_3.generations.keys() == {3}
    for one, n in ((first, 0), (last, 2)):
        assert isinstance(one, Invalidation)
        assert reader.get("q", {"n": n}, min_generation=0) == "v1"
        assert reader.get_entry("q", {"n": n}).generation == one.generation


def test_invalidate_many_of_no_keys_sends_nothing(make_reader: MakeReader) -> None:
    assert make_reader(redis_url="redis://127.0.0.1:1/0").invalidate_many([]) == []


def test_without_redis_each_key_of_invalidate_many_has_an_error_of_its_own(make_reader: MakeReader) -> None:
    done = make_reader(redis_url="redis://127.0.0.1:1/0").invalidate_many(CALLS)
    assert len({id(one) for one in done if isinstance(one, CacheUnavailable)}) == 5


@pytest.mark.parametrize(
    ("calls", "options"),
    [(CALLS, {"hard": "no"}), (CALLS, {"bookmarks": "FB:1"}), ([CALLS[0]] * 10_001, {}), (7, {})],
    ids=["hard", "bookmarks", "too many", "no items"],
)
def test_an_invalid_option_of_invalidate_many_is_refused_before_anything_is_sent(
    make_reader: MakeReader, calls: Any, options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidQuery):
        make_reader(redis_url="redis://127.0.0.1:1/0").invalidate_many(calls, **options)
