"""The registry of live versions: its two scripts, and a new version's first load interleaved with an invalidation."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
import redis

from api_client.protocol import lease
from api_client.protocol.entry import decode_header, encode
from api_client.protocol.keys import make_key, versions_key
from api_client.protocol.live_versions import (
    KnownVersions,
    VersionedInvalidation,
    loader_of,
    read_loaders,
    read_versions,
    register,
    register_loader,
)
from api_client.transport.scripts import LeaseStore
from tests.support.lease_world import ClockedWorld, World, a_header, acquire_call
from tests.support.redis_memory import full

_numbers = itertools.count(1)
LIVES_SECONDS = 5_000.0


@pytest.fixture
def query() -> str:
    return f"versioned_{next(_numbers)}"


def add(world: World, query: str, version: int, lives_seconds: float = LIVES_SECONDS) -> None:
    assert world.store.run(register("test", query, version, lives_seconds=lives_seconds)) == 1


def found(world: World, query: str) -> frozenset[int]:
    return world.store.run(read_versions("test", query))


def test_a_registered_version_is_found_once(world: World, query: str) -> None:
    assert found(world, query) == frozenset()
    for version in (2, 1, 2, 65_535):
        add(world, query, version)
    assert found(world, query) == {1, 2, 65_535}
    assert found(world, f"{query}.other") == frozenset()


def test_a_version_is_kept_for_the_longest_lifetime_that_a_worker_registered(
    clocked_world: ClockedWorld, query: str
) -> None:
    add(clocked_world, query, 1, lives_seconds=100)
    forgotten_at = clocked_world.client.zscore(versions_key("test", query), "1")
    assert forgotten_at == clocked_world.now_us() + 100_000_000
    add(clocked_world, query, 1, lives_seconds=10)
    clocked_world.pass_time(99)
    add(clocked_world, query, 2, lives_seconds=50)
    assert found(clocked_world, query) == {1, 2}
    clocked_world.pass_time(2)
    add(clocked_world, query, 3, lives_seconds=1)
    assert found(clocked_world, query) == {2, 3}
    kept = clocked_world.client.zrange(versions_key("test", query), 0, -1)
    assert kept == [b"3", b"2"], "a version that was not renewed is swept"


def test_the_registry_key_expires_with_its_last_version(clocked_world: ClockedWorld, query: str) -> None:
    add(clocked_world, query, 1, lives_seconds=100)
    add(clocked_world, query, 2, lives_seconds=10)
    clocked_world.pass_time(10 - 1e-6)
    assert found(clocked_world, query) == {1, 2}
    clocked_world.pass_time(1e-6)
    assert found(clocked_world, query) == {1}, "though nobody has swept it yet"
    clocked_world.pass_time(91)
    assert not clocked_world.client.exists(versions_key("test", query))


@pytest.mark.parametrize("foreign", [lambda r, k: r.set(k, "x"), lambda r, k: r.hset(k, "a", "b")], ids=["set", "hset"])
def test_a_registry_key_of_another_type_is_an_error_until_a_worker_replaces_it(
    world: World, query: str, foreign: Callable[[redis.Redis, str], object]
) -> None:
    foreign(world.client, versions_key("test", query))
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        found(world, query)
    add(world, query, 7)
    assert found(world, query) == {7}
    assert world.client.pttl(versions_key("test", query)) > 0


def test_an_unrecognised_version_is_ignored(world: World, query: str) -> None:
    add(world, query, 7)
    world.client.zadd(versions_key("test", query), {"x": 1, "0": 1, "65536": 1, "-1": 1, "1" * 5_000: 1, "²": 1})
    assert found(world, query) == {7}


def test_the_loaders_of_a_version_are_found_and_are_no_versions(world: World, query: str) -> None:
    loaders = {loader_of(7, None), loader_of(7, "n,limit="), loader_of(7, "n"), loader_of(71, "n"), loader_of(8, "")}
    for loader in loaders:
        world.store.run(register_loader("test", query, loader, lives_seconds=60))
    assert world.store.run(read_loaders("test", query, 7)) == {"batched:7", "takes:7:n,limit=", "takes:7:n"}
    assert world.store.run(read_loaders("test", query, 8)) == {"takes:8:"}
    assert world.store.run(read_loaders("test", query, 1)) == found(world, query) == frozenset()


def test_a_registration_in_a_full_redis_fails_and_keeps_the_known_versions(world: World, query: str) -> None:
    add(world, query, 1)
    with full(world.client), pytest.raises(redis.ResponseError, match="maxmemory"):
        add(world, query, 2)
    assert found(world, query) == {1}


# Every order of a new version's first load and an invalidation.


class Race:
    """A worker of version 2, which has not been loaded yet, and a writer that knows only version 1."""

    def __init__(self, client: redis.Redis, query: str) -> None:
        self.client, self.store, self.graph = client, LeaseStore(client), "old"
        self.keys = {version: make_key("test", query, None, version) for version in (1, 2)}
        self.known = KnownVersions()
        self.known.remember(query, frozenset({1}))
        self.store.run(register("test", query, 1, lives_seconds=LIVES_SECONDS))
        self._query = query

    def worker(self, *, registers_first: bool) -> Iterator[None]:
        key, nonce = self.keys[2], b"nonce--2"
        registration = register("test", self._query, 2, lives_seconds=LIVES_SECONDS)
        if registers_first:
            self.store.run(registration)
            yield
        run = self.store.run(acquire_call(key, nonce, number=0, ticket=""))
        yield
        loaded = self.graph
        yield
        if not registers_first:
            self.store.run(registration)
            yield
        entry = encode(a_header(run.token, nonce), key.digest, loaded.encode())
        committing = lease.commit(
            key, token=run.token, nonce=nonce, entry=entry, hard_ttl_seconds=1_000, retention_seconds=60.0
        )
        self.store.run(committing)
        yield

    def writer(self) -> Iterator[None]:
        self.graph = "new"
        yield

        invalidation = VersionedInvalidation(self.keys[1], self.known, hard=False, bookmarks=(), retention_seconds=60.0)
        rounds = invalidation.rounds()
        calls = next(rounds)
        replies = []
        while True:
            for call in calls:  # in a cluster each goes to another node: anything may happen between them
                replies.append(self.store.run(call))
                yield
            try:
                calls, replies = rounds.send(replies), []
            except StopIteration:
                return

    def is_stale_or_new(self) -> bool:
        """Return whether a reader of version 2 can't take the old value for a fresh one."""
        raw = self.client.get(self.keys[2].entry)
        if raw is None:
            return True
        header = decode_header(raw, self.keys[2].digest)
        return raw.endswith(b"new") or header.generation > header.token


def run(steps: tuple[bool, ...], worker: Iterator[None], writer: Iterator[None]) -> None:
    for is_worker in steps:
        next(worker if is_worker else writer, None)
    for rest in (worker, writer):
        list(rest)


def orders() -> list[tuple[bool, ...]]:
    """Every order of at most five steps of the worker and five of the writer."""
    return [tuple(place in chosen for place in range(10)) for chosen in itertools.combinations(range(10), 5)]


def outcomes(client: redis.Redis, query: str, *, registers_first: bool) -> list[bool]:
    results = []
    for number, steps in enumerate(orders()):
        race = Race(client, f"{query}_{number}")
        run(steps, race.worker(registers_first=registers_first), race.writer())
        results.append(race.is_stale_or_new())
    return results


def test_in_every_order_the_first_load_of_a_new_version_is_invalidated_or_has_read_the_new_value(
    client: redis.Redis, query: str
) -> None:
    assert all(outcomes(client, query, registers_first=True))


def test_a_version_registered_after_its_load_could_miss_an_invalidation(client: redis.Redis, query: str) -> None:
    assert not all(outcomes(client, query, registers_first=False)), "the test above can't fail"
