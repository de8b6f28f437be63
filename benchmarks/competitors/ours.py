"""Readers of this project with default settings but a longer timeout; a read includes decision and decoding."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

import msgspec

from api_client import AsyncCacheClient, CacheClient
from benchmarks.apparatus.entries import FROZEN, QUERY, Seeder, Value, rows_of
from benchmarks.competitors.competitor import Competitor, Dataset, Opened

_LOCAL_ENTRIES: Final = 10_000


def seed(dataset: Dataset) -> None:
    """Store fresh entries for all numbers."""
    with dataset.servers.plain() as client:
        Seeder(client, dataset.servers.namespace).put(dataset.numbers)


def _client(dataset: Dataset, stack: AsyncExitStack, *, is_async: bool, local: int = 0) -> Any:
    settings = dataset.servers.lenient_settings(local_max_entries=local)
    if is_async:
        client = AsyncCacheClient(settings)
        stack.push_async_callback(client.close)
        return client
    return stack.enter_context(CacheClient(settings))


def _by_number(dataset: Dataset, stack: AsyncExitStack, *, is_async: bool, local: int = 0) -> Opened:
    seed(dataset)
    get = _client(dataset, stack, is_async=is_async, local=local).get
    return Opened(lambda number: get(QUERY, {"person_id": number}))


def _frozen(dataset: Dataset, stack: AsyncExitStack, *, is_async: bool) -> Opened:
    seed(dataset)
    get = _client(dataset, stack, is_async=is_async, local=_LOCAL_ENTRIES).get
    return Opened(lambda number: get(QUERY, {"person_id": number}, type=FROZEN), _frozen_rows_of)


def _frozen_rows_of(number: int) -> Value:
    return msgspec.convert(rows_of(number), FROZEN)


SYNC: Final = Competitor("CacheClient", partial(_by_number, is_async=False))
ASYNC: Final = Competitor("AsyncCacheClient", partial(_by_number, is_async=True), is_async=True)
LOCAL_SYNC: Final = Competitor(
    "CacheClient, in-process tier", partial(_by_number, is_async=False, local=_LOCAL_ENTRIES), is_local=True
)
LOCAL_ASYNC: Final = Competitor(
    "AsyncCacheClient, in-process tier", partial(_by_number, is_async=True, local=_LOCAL_ENTRIES),
    is_async=True, is_local=True,
)  # fmt: skip
LOCAL_SYNC_FROZEN: Final = Competitor(
    f"{LOCAL_SYNC.title}, type= frozen", partial(_frozen, is_async=False), is_local=True
)
LOCAL_ASYNC_FROZEN: Final = Competitor(
    f"{LOCAL_ASYNC.title}, type= frozen", partial(_frozen, is_async=True), is_async=True, is_local=True
)
