"""Names, versions and params of other types, and text in another normal form: one entry, however it is reached."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from api_client import CachedQuery, EntryState, InvalidQuery, QueryCall, cached_query, get_cached
from refresher.testing import InlineCache
from tests.support.waiting import MAX_WAIT_SECONDS


class Name(str, enum.Enum):  # noqa: UP042 - what it is about
    FRIENDS = "friends_of"


class PlainName(enum.Enum):
    FRIENDS = "friends_of"


class Version(enum.IntEnum):
    NEW = 2


class City(enum.StrEnum):
    OSLO = "oslo"


PARAMS: dict[str, Any] = {"city": City.OSLO, "limit": np.int64(3)}
PLAIN = {"city": "oslo", "limit": 3}


@pytest.fixture(params=[Name.FRIENDS, PlainName.FRIENDS, np.str_("friends_of")], ids=["str", "plain", "numpy"])
def name(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def loads() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def cache(name: Any, loads: list[dict[str, Any]]) -> Iterator[InlineCache]:
    def load(**params: Any) -> int:
        loads.append(params)
        return len(loads)

    with InlineCache() as inline:
        inline.answer(name, load, version=Version.NEW)
        yield inline


def only(results: list[Any]) -> int:
    (result,) = results
    return int(result.value)


def test_all_ways_to_name_an_entry_reach_the_one_that_the_worker_writes(
    cache: InlineCache, name: Any, loads: list[dict[str, Any]]
) -> None:
    client = cache.client
    handle = CachedQuery(name, returns=int, version=Version.NEW)

    @cached_query(name, version=Version.NEW)
    def declared(city: str, limit: int) -> int:
        raise NotImplementedError

    async def read_async() -> int:
        async with cache.async_client as reader:
            return int(await reader.get(name, PARAMS, version=np.int8(2)))

    ways: list[Callable[[], int]] = [
        lambda: get_cached(name, PARAMS, version=Version.NEW),
        lambda: client.get_entry("friends_of", PLAIN, version=2).value,
        lambda: handle(**PARAMS),
        lambda: declared(City.OSLO, np.int64(3)),
        lambda: only(client.get_many([QueryCall(name, PARAMS, Version.NEW)])),
        lambda: only(client.get_many([(name, PARAMS)], version=Version.NEW)),
        lambda: asyncio.run(read_async()),
    ]
    assert [way() for way in ways] == [1] * len(ways)
    assert loads == [PLAIN]
    assert [type(value) for value in loads[0].values()] == [str, int]


@pytest.mark.parametrize("hard", [False, True])
def test_an_invalidation_by_an_enum_reaches_an_entry_read_by_text(
    cache: InlineCache, name: Any, loads: list[dict[str, Any]], hard: bool
) -> None:
    assert cache.client.get("friends_of", PLAIN, version=2) == 1
    cache.client.invalidate(name, PARAMS, version=Version.NEW, hard=hard)
    after = cache.client.get_entry("friends_of", PLAIN, version=2)
    assert after.state is (EntryState.MISS if hard else EntryState.STALE)
    assert len(loads) == 2
    assert cache.client.refresh(name, PARAMS, version=Version.NEW) == "triggered"
    assert cache.client.flush(MAX_WAIT_SECONDS)
    assert len(loads) == 3


def test_handles_and_errors_show_the_plain_name_and_version(cache: InlineCache, name: Any) -> None:
    handle = CachedQuery(name, returns=int, version=Version.NEW)
    assert (handle.name, handle.version, repr(handle)) == ("friends_of", 2, "<CachedQuery 'friends_of', version 2>")
    with pytest.raises(InvalidQuery, match=r"timeout of 'friends_of'") as caught:
        cache.client.get(name, PARAMS, version=Version.NEW, timeout="soon")
    assert caught.value.query == "friends_of"


def test_a_loader_gets_text_in_nfc_whichever_form_the_caller_gives(cache: InlineCache, loads: list[Any]) -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    for text in (decomposed, composed):
        get_cached("friends_of", {"city": text, "inner": {text: [text]}}, version=2)
    assert loads == [{"city": composed, "inner": {composed: [composed]}}]
