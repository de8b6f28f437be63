"""Refreshes in batches, on real processes: readers see no difference, and each key ends as it would alone."""

from __future__ import annotations

import pytest

from api_client import CacheClient, CacheError, Entry, EntryState, RefreshFailed
from refresher.flow.dead_letters import DeadLetters
from tests.acceptance.conftest import System
from tests.support.any_reader import KINDS, AnyReader
from tests.support.batched_queries import BATCH, FAULTS, LOADS, QUERY
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("published_once")

COUNT = 200


@pytest.fixture
def system_in_batches(system: System) -> System:
    system.env["REFRESHER_QUERIES"] = "tests.support.batched_queries"
    system.env["CACHE_XFETCH_RETRY_BACKOFF"] = "1"
    return system


def read(client: CacheClient | AnyReader, count: int = COUNT) -> list[Entry[int] | CacheError]:
    return client.get_many([(QUERY, {"n": n}) for n in range(count)])


def values(answers: list[Entry[int] | CacheError]) -> list[int | str]:
    return [answer.value if isinstance(answer, Entry) else type(answer).__name__ for answer in answers]


def sizes(system: System) -> list[int]:
    return [int(size) for size in system.control.lrange(LOADS, 0, -1)]


@pytest.mark.promise("Refreshing", "In a batch, each reader gets its own value")
@pytest.mark.smoke
@pytest.mark.usefixtures("no_hold_ends")
@pytest.mark.parametrize("kind", KINDS)
def test_keys_due_together_are_loaded_in_batches_and_each_gets_its_own_value(
    system_in_batches: System, kind: str
) -> None:
    system = system_in_batches
    system.start_worker()
    client = system.reader(kind)
    assert values(read(client)) == [n * n for n in range(COUNT)]
    misses = sizes(system)
    assert sum(misses) == COUNT
    assert max(misses) == BATCH
    assert len(misses) < COUNT / 4

    tokens = []
    for n in range(COUNT):
        client.invalidate(QUERY, {"n": n})
        tokens.append(client.get_entry(QUERY, {"n": n}).token if n % 20 == 0 else 0)
    stale = read(client)
    assert values(stale) == [n * n for n in range(COUNT)]

    def fresh() -> list[Entry[int]] | None:
        entries = [entry for entry in read(client) if isinstance(entry, Entry)]
        return entries if all(entry.state is EntryState.FRESH for entry in entries) else None

    entries = eventually(fresh, "all are fresh again")
    assert [entry.degree for entry in entries] == [n + 1 for n in range(COUNT)]
    assert all(entry.token > token for entry, token in zip(entries, tokens, strict=True))
    again = sizes(system)[len(misses) :]
    assert sum(again) == COUNT, "one load each"


@pytest.mark.parametrize("fault", ["raise", "missing"])
def test_a_faulty_key_of_a_batch_fails_alone(system_in_batches: System, fault: str) -> None:
    system = system_in_batches
    system.start_worker()
    system.control.hset(FAULTS, "13", fault)
    answers = read(system.client(), BATCH)
    failed = answers.pop(13)
    assert isinstance(failed, RefreshFailed)
    assert failed.kind == {"raise": "loader_error", "missing": "wrong_batch"}[fault]
    assert values(answers) == [n * n for n in range(BATCH) if n != 13]


@pytest.mark.promise("Refreshing", "A key that kills its worker process is found among those of its batch")
def test_a_key_that_kills_its_process_is_isolated_and_the_rest_of_the_batch_is_loaded(
    system_in_batches: System,
) -> None:
    system = system_in_batches
    system.start_worker()
    system.control.hset(FAULTS, "13", "kill")
    answers = read(system.client(), BATCH)
    failed = answers.pop(13)
    assert isinstance(failed, RefreshFailed)
    assert failed.kind in {"worker_lost", "taken_over"}
    assert values(answers) == [n * n for n in range(BATCH) if n != 13]
    letters = eventually(lambda: DeadLetters(system.cache, "cache").newest(), "a dead letter")
    assert [letter.params for letter in letters] == [{"n": 13}]
