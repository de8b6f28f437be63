"""Callers that share a failure: each gets an exception of its own, whose traceback is that caller's alone."""

from __future__ import annotations

import asyncio
import pickle
import traceback
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from api_client import AsyncCacheClient, CacheClient, CacheError, CacheUnavailable, ReaderSettings, RefreshFailed
from refresher.embedded import free_port
from tests.integration.reader.conftest import NewKey
from tests.support.any_reader import callers_waiting
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

THREADS = 300
TASKS = 500
LINES = 100
"""More lines than the log entry of one caller has, with its own frames and those of the cause."""


@pytest.fixture
def cut_off() -> ReaderSettings:
    nowhere = f"redis://127.0.0.1:{free_port()}/0"
    return ReaderSettings(redis_url=nowhere, broker_url=nowhere, redis_timeout_seconds=MAX_WAIT_SECONDS)


@pytest.fixture
def client(settings: dict[str, Any]) -> Iterator[CacheClient]:
    with CacheClient(ReaderSettings(**settings)) as made:
        yield made


def lines(error: BaseException) -> int:
    return sum(part.count("\n") for part in traceback.format_exception(error))


def are_each_their_own(errors: list[BaseException | None], kind: type[CacheError]) -> None:
    """Fail unless all are of the kind, no two are one object, and each is short in a log."""
    assert {type(error) for error in errors} == {kind}
    assert len({id(error) for error in errors}) == len(errors)
    assert max(lines(error) for error in errors if error is not None) < LINES


async def failures(calls: list[Coroutine[Any, Any, Any]], fail: Callable[[], object]) -> list[BaseException | None]:
    tasks = [asyncio.ensure_future(call) for call in calls]
    failing = asyncio.create_task(asyncio.to_thread(fail))
    await asyncio.wait(tasks)
    await failing
    return [task.exception() for task in tasks]


def test_threads_that_share_a_failed_wait_get_an_exception_each(client: CacheClient, new_key: NewKey) -> None:
    key = new_key()
    with ThreadPoolExecutor(THREADS) as pool:
        reads = [pool.submit(client.get, "q", {}) for _ in range(THREADS)]
        eventually(lambda: callers_waiting(client) == [THREADS], "all share a wait")
        key.abandon(kind="syntax", attempts=3)
        errors = [read.exception(MAX_WAIT_SECONDS) for read in reads]
    are_each_their_own(errors, RefreshFailed)
    for error in errors:
        copied = pickle.loads(pickle.dumps(error))  # noqa: S301 - its own
        assert (copied.query, copied.kind, copied.attempts) == ("q", "syntax", 3)
        assert isinstance(error, RefreshFailed)
        assert 0 < error.retry_after_seconds <= 30


async def test_tasks_that_share_a_failed_wait_get_an_exception_each(settings: dict[str, Any], new_key: NewKey) -> None:
    async with AsyncCacheClient(ReaderSettings(**settings)) as client:
        errors = await failures([client.get("q", {}) for _ in range(TASKS)], new_key().abandon)
    are_each_their_own(errors, RefreshFailed)


async def test_tasks_that_share_a_refused_connection_get_an_exception_each(cut_off: ReaderSettings) -> None:
    async with AsyncCacheClient(cut_off) as client:
        errors = await failures([client.get("q", {}) for _ in range(TASKS)], lambda: None)
    are_each_their_own(errors, CacheUnavailable)
    assert {type(error.__cause__).__name__ for error in errors if error is not None} == {"ConnectionError"}


def test_items_of_a_batch_that_share_a_failure_get_an_exception_each(
    cut_off: ReaderSettings, client: CacheClient, new_key: NewKey
) -> None:
    with CacheClient(cut_off) as without:
        errors = without.get_many([("q", {"n": n % 2}) for n in range(10)])
    are_each_their_own([error for error in errors if isinstance(error, CacheError)], CacheUnavailable)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(client.get_many, [("q", {})] * 10)
        new_key().abandon()
        errors = reading.result(MAX_WAIT_SECONDS)
    are_each_their_own([error for error in errors if isinstance(error, CacheError)], RefreshFailed)
    assert len(errors) == 10
