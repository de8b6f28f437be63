"""Calls of the async reader, cancelled at any await: the cancellation comes out, and disturbs no other call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import pytest

from api_client import AsyncCacheClient, Entry, ReaderSettings
from tests.integration.reader.conftest import NewKey
from tests.support.any_reader import callers_waiting, turn_local_cache_on
from tests.support.cancelling import CancelledAt, CancelPoint
from tests.support.fake_worker import WorkedKey
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

STALE_SECONDS: Final = 200_000.0
MAX_AWAITS: Final = 500
POLL_SECONDS: Final = 0.001


@dataclass(frozen=True)
class Case:
    """A call, its minimum number of awaits, the entry before it, and its result (None: any)."""

    call: Callable[[AsyncCacheClient, str], Coroutine[Any, Any, Any]]
    min_awaits: int
    prepare: Callable[[WorkedKey], object] = lambda _: None
    result: Any = "v"
    settings: tuple[tuple[str, Any], ...] = ()
    is_first: bool = False
    """Whether the client is new: then it has to sync its clock, too. It connects in any case."""


async def _entries(client: AsyncCacheClient, query: str) -> list[Any]:
    found = await client.get_many([(query, None), ("warm", None)])
    return [entry.value if isinstance(entry, Entry) else entry for entry in found]


async def _twice(client: AsyncCacheClient, query: str) -> Any:
    await client.get(query)
    return await client.get(query)


def _fresh(key: WorkedKey) -> object:
    return key.store_value("v")


def _stale(key: WorkedKey) -> object:
    return key.store_value("v", age_seconds=STALE_SECONDS)


CASES: Final = {
    "first": Case(lambda client, query: client.get(query), 3, _fresh, is_first=True),
    "hit": Case(lambda client, query: client.get(query), 2, _fresh),
    "stale": Case(lambda client, query: client.get(query), 2, _stale),
    "miss": Case(lambda client, query: client.get(query), 3),
    "fresh": Case(lambda client, query: client.get(query, fresh=True), 4, _fresh),
    "many": Case(_entries, 3, result=["v", "warm"]),
    "local": Case(_twice, 2, _fresh, settings=(("local_max_entries", 100),)),
    "invalidate": Case(lambda client, query: client.invalidate(query), 1, _fresh, result=None),
    "invalidate one": Case(lambda client, query: client.invalidate(query, version=1), 2, _fresh, result=None),
    "refresh": Case(lambda client, query: client.refresh(query), 2, _stale, result=None),
    "refresh and wait": Case(lambda client, query: client.refresh(query, wait=True), 4, _stale, None),
    "explain": Case(lambda client, query: client.explain(query), 1, _fresh, result=None),
    "flush": Case(lambda client, _: client.flush(), 1, result=True),
}  # fmt: skip


@pytest.mark.parametrize("moment", list(CancelPoint))
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_call_cancelled_at_any_await_ends_cancelled_and_the_others_go_on(
    case: Case, moment: CancelPoint, settings: dict[str, Any], new_key: NewKey
) -> None:
    new_key("warm").store_value("warm")
    client = _made(case, settings)
    for number in count():
        assert number < MAX_AWAITS
        key = new_key(f"q{number}")
        case.prepare(key)
        if case.is_first and number:
            client.close_threads()
            client = _made(case, settings)
        if not asyncio.run(_is_cancelled(case, client, key, number, moment)):
            break
    client.close_threads()
    assert number >= case.min_awaits


def _made(case: Case, settings: dict[str, Any]) -> AsyncCacheClient:
    client = AsyncCacheClient(ReaderSettings(**(settings | dict(case.settings))))
    turn_local_cache_on(client)
    return client


async def _is_cancelled(case: Case, client: AsyncCacheClient, key: WorkedKey, number: int, moment: CancelPoint) -> bool:
    """Cancel one of two calls; return whether it has reached that await."""
    asyncio.get_running_loop().set_default_executor(_LateExecutor())
    cancelled = CancelledAt(case.call(client, key.key.query), number, moment)
    calls = [asyncio.create_task(call) for call in (cancelled.run(), case.call(client, key.key.query))]
    over = threading.Event()
    loading = asyncio.create_task(asyncio.to_thread(_load_until, over, key))
    try:
        async with asyncio.timeout(MAX_WAIT_SECONDS):
            its_end, others_end = await asyncio.gather(*calls, return_exceptions=True)
    finally:
        over.set()
        await loading
    assert isinstance(its_end, asyncio.CancelledError) == cancelled.has_cancelled, (number, its_end)
    assert not isinstance(others_end, BaseException), (number, others_end)
    assert case.result in (None, others_end)
    await _left_as_it_was(client)
    return cancelled.has_cancelled


class _LateExecutor(ThreadPoolExecutor):
    """Runs nothing before the event loop has turned: Python 3.14 does not await what has ended by then."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        turned = threading.Event()
        asyncio.get_running_loop().call_soon(turned.set)
        return super().submit(lambda: (turned.wait(), fn(*args, **kwargs))[1])


def _load_until(over: threading.Event, key: WorkedKey) -> None:
    """Play the worker: load whenever a claim is queued."""
    while not over.wait(POLL_SECONDS):
        if key.state() == "queued":
            key.load("v")


async def _left_as_it_was(client: AsyncCacheClient) -> None:
    """Fail if a reply is half-read, a caller waits, or a task is left."""
    assert await client.get("warm") == "warm"
    assert callers_waiting(client) == []
    loop = asyncio.get_running_loop()
    await asyncio.to_thread(eventually, lambda: len(asyncio.all_tasks(loop)) == 1, "no task is left but this")
