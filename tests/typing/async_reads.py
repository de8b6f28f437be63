"""Samples of the async reader for a type checker; as `sync_reads.py`."""

# ruff: noqa: B018 - wrong uses stand here on purpose

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict, reveal_type

from api_client import AsyncCacheClient, CacheClient, CachedQuery, aget_cached, cached_query


@dataclass
class Friend:
    name: str


class Row(TypedDict):
    name: str


friends_of = CachedQuery("friends_of", returns=list[Friend])
maybe = CachedQuery("friend", returns=Friend | None)


@cached_query("friends_of")
def close_friends(person_id: int, limit: int = 10) -> list[Friend]:
    raise NotImplementedError


async def read() -> None:
    async with AsyncCacheClient.from_env() as client:
        # --- AsyncCacheClient.get, aget_cached
        reveal_type(client)  # is AsyncCacheClient
        reveal_type(await client.get("friends_of"))  # is Any
        reveal_type(await client.get("friends_of", type=list[Friend]))  # is list[Friend]
        reveal_type(await client.get("friends_of", type=Row, default=None))  # is Row | None
        reveal_type(await aget_cached("friends_of", type=list[Friend]))  # is list[Friend]
        reveal_type(await aget_cached("friends_of", type=list[Friend], default=0))  # is list[Friend] | int
        reveal_type(await client.get("friend", type=Friend | None))  # is Friend | None
        reveal_type(await aget_cached("friend", type=Friend | None))  # is Friend | None
        reveal_type(await client.get_entry("friends_of"))  # is Entry[Any]
        reveal_type((await client.get_entry("friends_of", type=list[Friend])).value)  # is list[Friend]
        await client.get("friends_of", type=42)  # error call-overload
        await client.get("friends_of", maxage=1)  # error call-overload
        (await client.get("friends_of", type=Friend)).age  # error attr-defined
        client.get("friends_of", type=Friend).name  # error attr-defined

        # --- CachedQuery
        reveal_type(await friends_of.aio(person_id=42))  # is list[Friend]
        reveal_type(await maybe.aio())  # is Friend | None
        bound = friends_of.on(client)
        reveal_type(bound)  # is AsyncCachedQuery[..., list[Friend]]
        reveal_type(await bound(person_id=42))  # is list[Friend]
        reveal_type(await bound.of(person_id=42).get(timeout=1))  # is list[Friend]
        reveal_type(await bound.of(person_id=42).get(default=None))  # is list[Friend] | None
        reveal_type(await bound.of(person_id=42).get_entry())  # is Entry[list[Friend]]
        reveal_type(await bound.many([bound.of(person_id=42)]))  # is list[Entry[list[Friend]] | CacheError]
        reveal_type(await bound.of(person_id=42).explain())  # is Explanation
        reveal_type(await bound.of(person_id=42).refresh())  # is RefreshState
        reveal_type(await friends_of.aio.of(person_id=42).invalidate())  # is Invalidation
        reveal_type(await client.get_many([bound.of(person_id=42)]))  # is list[Entry[Any] | CacheError]
        bound(person_id=42)[0]  # error index
        bound.aio(person_id=42)  # error attr-defined

        # --- cached_query
        reveal_type(await close_friends.aio(42))  # is list[Friend]
        reveal_type(await close_friends.on(client)(42, limit=3))  # is list[Friend]
        await close_friends.aio("Ada")  # error arg-type
        await close_friends.on(client)(person=42)  # error call-arg


def on_a_sync_client(client: CacheClient) -> None:
    reveal_type(close_friends.on(client)(42))  # is list[Friend]
