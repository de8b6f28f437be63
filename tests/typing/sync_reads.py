"""Samples of the sync reader for a type checker. Read by `test_inference.py`, never run.

``# is`` is the type that `reveal_type` must report on that line; ``# error`` the code of a wrong use's error.
"""

# ruff: noqa: B018 - wrong uses stand here on purpose

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypedDict, reveal_type

from api_client import CacheClient, CachedQuery, cached_query, get_cached


@dataclass
class Friend:
    name: str


class Row(TypedDict):
    name: str


# --- CacheClient.get, get_cached
client = CacheClient.from_env()
reveal_type(client.get("friends_of"))  # is Any
reveal_type(client.get("friends_of", {"person_id": 42}, type=list[Friend]))  # is list[Friend]
reveal_type(client.get("friends_of", type=Row, max_age="1m"))  # is Row
reveal_type(client.get("friends_of", type=list[Friend], default=None))  # is list[Friend] | None
reveal_type(client.get("friends_of", type=list[Friend], default="none"))  # is list[Friend] | str
reveal_type(client.get("friend", type=Friend | None))  # is Friend | None
reveal_type(client.get("level", type=Literal["low", "high"]))  # is Literal['low'] | Literal['high']
reveal_type(get_cached("friend", type=Friend | None, default=0))  # is Friend | None | int
reveal_type(client.get("friends_of", default=0))  # is Any
reveal_type(get_cached("friends_of", type=list[Friend]))  # is list[Friend]
reveal_type(get_cached("friends_of", type=dict[str, Row], default=None))  # is dict[str, Row] | None
reveal_type(client.get_entry("friends_of", {"person_id": 42}))  # is Entry[Any]
reveal_type(client.get_entry("friends_of", type=list[Friend], fresh=True).value)  # is list[Friend]
client.get_entry("friends_of", default=None)  # error call-overload
client.get(42)  # error call-overload
client.get("friends_of", 42)  # error call-overload
client.get("friends_of", type=42)  # error call-overload
client.get("friends_of", max_age=[])  # error call-overload
client.get("friends_of", maxage="1m")  # error call-overload
get_cached("friends_of", fresh="yes")  # error call-overload
wrong: int = client.get("friends_of", type=list[Friend])  # error assignment

# --- CachedQuery: the type of the value
friends_of = CachedQuery("friends_of", returns=list[Friend], max_age="10m")
maybe = CachedQuery("friend", returns=Friend | None, version=2)
row = CachedQuery("row", returns=Row)
level = CachedQuery("level", returns=Literal["low", "high"])
anything = CachedQuery("anything", returns=Any)
reveal_type(friends_of)  # is CachedQuery[..., list[Friend]]
reveal_type(friends_of(person_id=42))  # is list[Friend]
reveal_type(maybe(person_id=42))  # is Friend | None
reveal_type(row())  # is Row
reveal_type(level())  # is Literal['low'] | Literal['high']
reveal_type(anything())  # is Any
reveal_type(friends_of.of(person_id=42).get(timeout=1))  # is list[Friend]
reveal_type(friends_of.of(person_id=42).get(default=None))  # is list[Friend] | None
reveal_type(friends_of.of(person_id=42).get_entry())  # is Entry[list[Friend]]
reveal_type(friends_of.of(person_id=42).get_entry().value[0].name)  # is str
reveal_type(friends_of.on(client))  # is CachedQuery[..., list[Friend]]
reveal_type(friends_of.many([friends_of.of(person_id=42)]))  # is list[Entry[list[Friend]] | CacheError]
reveal_type(row.of())  # is tuple[str, Mapping[str, Any] | None, int, Any, fallback=CachedCall[Row]]
reveal_type(client.get_many([friends_of.of(person_id=42), row.of(), ("x", {})]))  # is list[Entry[Any] | CacheError]
reveal_type(friends_of.of(person_id=42).explain())  # is Explanation
reveal_type(friends_of.of(person_id=42).refresh(wait=True))  # is RefreshState
reveal_type(friends_of.of(person_id=42).invalidate(hard=True))  # is Invalidation
reveal_type(friends_of.of(person_id=42).key())  # is CacheKey
friends_of(person_id=42)[0].age  # error attr-defined
maybe(person_id=42).name  # error union-attr
row()["age"]  # error typeddict-item
friends_of.of(person_id=42).get(version=2)  # error call-overload
friends_of.of(person_id=42).get_entry(default=None)  # error call-arg
friends_of.name = "other"  # error misc
CachedQuery("friends_of")  # error call-arg
CachedQuery("friends_of", returns=42)  # error arg-type
CachedQuery("friends_of", returns=int, ttl="1m")  # error call-arg
CachedQuery("friends_of", returns=int, version="2")  # error arg-type


# --- cached_query: the params as well
@cached_query("friends_of", timeout="200ms")
def close_friends(person_id: int, limit: int = 10) -> list[Friend]:
    raise NotImplementedError


@cached_query("friend")
def friend(person_id: int) -> Friend | None:
    raise NotImplementedError


reveal_type(close_friends)  # is CachedQuery[[person_id: int, limit: int =], list[Friend]]
reveal_type(close_friends(person_id=42))  # is list[Friend]
reveal_type(close_friends(42, limit=3))  # is list[Friend]
reveal_type(friend(42))  # is Friend | None
reveal_type(close_friends.on(client)(42))  # is list[Friend]
reveal_type(close_friends.of(42).get(default=None))  # is list[Friend] | None
close_friends.of(person="Ada")  # error call-arg
close_friends.of("Ada").invalidate()  # error arg-type
friends_of.many([{"person_id": 42}])  # error list-item
friends_of.many([row.of()])  # error list-item
close_friends()  # error call-arg
close_friends("Ada")  # error arg-type
close_friends(person=42)  # error call-arg
close_friends(42, 3, 4)  # error call-arg
close_friends(42, max_age="1m")  # error call-arg
cached_query("friends_of", returns=int)  # error call-arg
