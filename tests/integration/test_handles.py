"""Typed handles on a real cache."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import pytest

from api_client import (
    AsyncCacheClient,
    CachedQuery,
    DecodeError,
    Entry,
    EntryState,
    InvalidQuery,
    RefreshState,
    cached_query,
    default_async_client,
)
from api_client import default as default_client
from api_client.config.settings import ReaderSettings
from refresher.testing import InlineCache
from tests.support.waiting import MAX_WAIT_SECONDS

pytestmark = pytest.mark.usefixtures("patient_publishers", "published_once")


@dataclass
class Friend:
    name: str


friends_of = CachedQuery("friends_of", returns=list[Friend], version=2)
friend = CachedQuery("friend", returns=Friend | None)


@cached_query("friends_of", version=2)
def some_friends(person_id: int) -> list[Friend]:
    raise NotImplementedError


@pytest.fixture
def cache() -> Iterator[InlineCache]:
    with InlineCache() as inline:
        inline.answer("friends_of", lambda person_id: [{"name": f"friend {person_id}"}], version=2, ttl="5m")
        yield inline


def test_a_read_gives_the_type_and_both_kinds_of_handle_read_one_entry(cache: InlineCache) -> None:
    assert friends_of(person_id=42) == [Friend("friend 42")]
    assert some_friends(42) == [Friend("friend 42")]
    assert len(cache.outcomes) == 1
    entry = friends_of.of(person_id=42).get_entry()
    assert (entry.value, entry.state) == ([Friend("friend 42")], EntryState.FRESH)


def test_none_is_a_value(cache: InlineCache) -> None:
    cache.answer("friend", lambda person_id: {"name": "Ada"} if person_id else None)
    assert friend(person_id=0) is None
    assert friend(person_id=1) == Friend("Ada")


def test_a_value_of_another_shape_is_an_error_that_names_the_field(cache: InlineCache) -> None:
    cache.answer("friends_of", lambda person_id: [{"name": 3}], version=2)
    with pytest.raises(DecodeError, match=r"'friends_of' does not fit .*\$\[0\]\.name"):
        friends_of(person_id=1)


def test_key_invalidate_explain_and_refresh_use_the_handle_s_version(cache: InlineCache) -> None:
    first = friends_of.of(person_id=42).get_entry()
    assert friends_of.of(person_id=42).key() == cache.client.key("friends_of", {"person_id": 42}, version=2)
    invalidation = friends_of.of(person_id=42).invalidate()
    assert friends_of.of(person_id=42).get_entry().state is EntryState.STALE
    second = friends_of.of(person_id=42).get_entry()
    assert second.token > invalidation.generation > first.token
    assert friends_of.of(person_id=42).explain().key == friends_of.of(person_id=42).key().entry
    assert friends_of.of(person_id=42).refresh(wait=True) is RefreshState.TRIGGERED
    assert friends_of.of(person_id=42).get_entry().token > second.token


def test_the_options_of_a_handle_apply_to_its_reads(cache: InlineCache) -> None:
    recent = CachedQuery("friends_of", returns=list[Friend], version=2, max_age="1m")
    friends_of(person_id=42)
    cache.advance("2m")
    friends_of(person_id=42)
    assert len(cache.outcomes) == 1
    recent(person_id=42)
    assert len(cache.outcomes) == 2


def test_a_batch_gives_an_entry_or_an_error_for_each(cache: InlineCache) -> None:
    cache.answer("friend", lambda person_id: {"name": "Ada"} if person_id else {"name": 3})
    found = friend.many(
        (friend.of(**params) for params in ({"person_id": 1}, {"person id": 1}, {"person_id": 0})), timeout="30s"
    )
    assert isinstance(found[0], Entry)
    assert found[0].value == Friend("Ada")
    assert [type(error) for error in found[1:]] == [InvalidQuery, DecodeError]


def test_handles_of_different_queries_go_in_one_batch(cache: InlineCache) -> None:
    cache.answer("friend", lambda person_id: {"name": "Ada"})
    found = cache.client.get_many([friends_of.of(person_id=42), friend.of(person_id=1), some_friends.of(42)])
    assert [entry.value for entry in found if isinstance(entry, Entry)] == [
        [Friend("friend 42")],
        Friend("Ada"),
        [Friend("friend 42")],
    ]


def async_settings(cache: InlineCache) -> ReaderSettings:
    settings = cache.client.settings
    broker_url = settings.redis_url.removesuffix("/0") + "/1"
    return msgspec.structs.replace(settings, broker_url=broker_url, redis_timeout_seconds=MAX_WAIT_SECONDS)


def test_on_an_async_client_the_same_methods_are_awaited(cache: InlineCache) -> None:
    own = friends_of.of(person_id=42)
    before = own.get_entry()

    async def read() -> None:
        async with AsyncCacheClient(async_settings(cache)) as client:
            bound = friends_of.on(client)
            one = bound.of(person_id=42)
            assert await bound(person_id=42) == [Friend("friend 42")]
            assert await some_friends.on(client)(42) == [Friend("friend 42")]
            assert await one.get(max_age="1m", default=None) == [Friend("friend 42")]
            assert (await one.get_entry()).token == before.token
            assert [entry.value for entry in await bound.many([one, one]) if isinstance(entry, Entry)] == [
                [Friend("friend 42")]
            ] * 2
            assert one.key() == own.key()
            assert (await one.explain()).key == own.key().entry
            assert (await one.invalidate()).generation > before.token
            assert await one.refresh() is RefreshState.TRIGGERED
            assert await one.refresh() is RefreshState.SUPPRESSED
            with pytest.raises(InvalidQuery, match="version is the handle's own"):
                await one.get(version=1)  # type: ignore[call-overload]
            assert repr(bound) == "<AsyncCachedQuery 'friends_of', version 2>"
            assert bound == friends_of.on(client)

    asyncio.run(read())


def test_aio_reads_and_invalidates_through_the_default_async_client(cache: InlineCache) -> None:
    friends_of(person_id=42)

    async def read() -> None:
        async with AsyncCacheClient(async_settings(cache)) as client:
            before = default_client.use_as_async_default(client)
            try:
                assert await friends_of.aio(person_id=42) == [Friend("friend 42")]
                assert await some_friends.aio(42) == [Friend("friend 42")]
                invalidation = await some_friends.aio.of(42).invalidate()
                assert (await friends_of.aio.of(person_id=42).get_entry()).generation == invalidation.generation
                assert default_async_client() is client
            finally:
                default_client.use_as_async_default(before)
        with pytest.raises(InvalidQuery, match="'friends_of' is bound to a sync client"):
            await friends_of.on(cache.client).aio(person_id=42)

    asyncio.run(read())
