"""An invalidation reaches every version of its key that workers load, on readers of each kind."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from api_client import CachedQuery, EntryState, Invalidation, InvalidQuery
from api_client.protocol.live_versions import register
from api_client.transport.scripts import LeaseStore
from tests.integration.reader.conftest import NAMESPACE, MakeReader, NewKey
from tests.support.any_reader import AnyReader, client_of
from tests.support.internals import reading_link_of


@pytest.fixture
def live(control: redis.Redis, new_key: NewKey) -> Any:
    """Register versions of the query q, with an entry each."""

    def make(*versions: int) -> None:
        for version in versions:
            LeaseStore(control).run(register(NAMESPACE, "q", version, lives_seconds=1_000))
            new_key(version=version).store_value(f"v{version}")

    return make


def states(reader: AnyReader, *versions: int) -> list[EntryState]:
    return [reader.get_entry("q", {}, version=version).state for version in versions]


def stale_by_number(control: redis.Redis, new_key: NewKey, *versions: int) -> list[bool]:
    headers = [new_key(version=version).entry() for version in versions]
    return [header is not None and header.generation > header.token for header in headers]


@pytest.mark.promise("Reading", "An invalidation reaches all live versions of a key")
def test_an_invalidation_without_a_version_reaches_all_registered_versions(
    reader: AnyReader, live: Any, new_key: NewKey, control: redis.Redis
) -> None:
    live(1, 2, 7)
    done = reader.invalidate("q", {})
    assert stale_by_number(control, new_key, 1, 2, 7) == [True, True, True]
    assert done.generations.keys() == {1, 2, 7}
    assert done.generation == done.generations[1]
    assert states(reader, 1, 2, 7) == [EntryState.STALE] * 3


def test_an_invalidation_with_a_version_reaches_that_version_only(
    reader: AnyReader, live: Any, new_key: NewKey, control: redis.Redis
) -> None:
    live(1, 2)
    done = reader.invalidate("q", {}, version=2)
    assert stale_by_number(control, new_key, 1, 2) == [False, True]
    assert done == Invalidation(done.generation, None, {2: done.generation})


def test_an_invalidation_with_replicas_waits_for_all_versions(
    reader: AnyReader, live: Any, replica_waits: list[float]
) -> None:
    live(1, 2)
    done = reader.invalidate("q", {}, replicas=1)
    assert (done.replicated, done.generations.keys(), len(replica_waits)) == (False, {1, 2}, 2)


def test_an_invalidation_s_bookmarks_are_recorded_for_all_versions(
    reader: AnyReader, live: Any, new_key: NewKey
) -> None:
    live(1, 2)
    reader.invalidate("q", {}, bookmarks=["FB:1"])
    assert [new_key(version=version).record()["bookmarks"] for version in (1, 2)] == [b"FB:1", b"FB:1"]


def test_an_unregistered_query_is_invalidated_in_the_default_version(reader: AnyReader, new_key: NewKey) -> None:
    for version in (1, 2):
        new_key(version=version).store_value("x")
    assert reader.invalidate("q", {}).generations.keys() == {1}


def test_known_versions_take_one_round_trip_and_new_ones_a_second(
    reader: AnyReader, live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = client_of(reader)
    link, rounds = reading_link_of(client), list[int]()
    run_each = link.run_each
    monkeypatch.setattr(link, "run_each", lambda calls, query: rounds.append(len(calls)) or run_each(calls, query))
    counts = []
    for version in (1, 2):
        live(version)
        for _ in range(2):
            rounds.clear()
            reader.invalidate("q", {})
            counts.append(list(rounds))
    assert counts == [[2], [2], [2, 1], [3]]


def test_an_invalidation_and_its_generations_are_accepted_as_min_generation(
    reader: AnyReader, live: Any, new_key: NewKey
) -> None:
    live(1, 2)
    done = reader.invalidate("q", {})
    for version in (1, 2):
        new_key(version=version).store_value("later")
    for given in (done, done.generations):
        assert [reader.get("q", {}, version=version, min_generation=given) for version in (1, 2)] == ["later"] * 2
    assert reader.get("q", {}, min_generation=done.generation) == "later"


def test_min_generation_uses_the_generation_of_the_version_that_is_read(reader: AnyReader, new_key: NewKey) -> None:
    token = new_key(version=2).store_value("v2")
    ahead = 2 * token
    assert reader.get("q", {}, version=2, min_generation={1: ahead, 2: token - 1}, timeout=0, default="none") == "v2"
    assert reader.get("q", {}, version=2, min_generation={1: 0, 2: token + 1}, timeout=0, default="none") == "none"
    assert reader.get("q", {}, version=2, min_generation={1: ahead}, timeout=0, default="none") == "none"


def test_each_item_of_a_batch_uses_the_min_generation_of_its_version(reader: AnyReader, new_key: NewKey) -> None:
    from api_client import Entry, QueryCall

    tokens = {version: new_key(version=version).store_value(f"v{version}") for version in (1, 2)}
    calls = [QueryCall("q", {}, version) for version in (1, 2)]
    generations = {1: tokens[1] - 1, 2: tokens[2] + 1}
    first, second = reader.get_many(calls, min_generation=generations, timeout=0)
    assert isinstance(first, Entry)
    assert first.value == "v1"
    assert type(second).__name__ == "WaitTimeout"


@pytest.mark.parametrize("wrong", [{}, {1: -1}, {1: True}, {"1": 1}, {1: "1"}, "1", 1.0, None, [1], -1, True])
def test_an_invalid_min_generation_is_refused(reader: AnyReader, wrong: Any) -> None:
    with pytest.raises(InvalidQuery, match="expected an Invalidation, its generations, or one of them"):
        reader.get("q", {}, min_generation=wrong)


def test_a_handle_invalidates_its_own_version_and_all_others(
    make_reader: MakeReader, live: Any, new_key: NewKey, control: redis.Redis
) -> None:
    live(1, 3)
    reader = make_reader()
    handle: CachedQuery[..., Any] = CachedQuery("q", returns=Any, version=2)
    made = handle.on(client_of(reader)).of().invalidate()
    done = made if isinstance(made, Invalidation) else reader.wait_for(made)  # type: ignore[attr-defined]
    assert done.generations.keys() == {1, 2, 3}
    assert done.generation == done.generations[2]
    assert stale_by_number(control, new_key, 1, 3) == [True, True]
