"""Look-ups of keys in Redis: explanations, versions, and keys by the first digits of their digests."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

import redis
from redis.exceptions import NoPermissionError

from api_client.errors import InvalidQuery
from api_client.explain import GONE, Explanation, explain_reads, explanation
from api_client.protocol.keys import CacheKey, key_of_version, versions_key
from api_client.protocol.live_versions import versions_of
from api_client.transport.redis_py import node_of, nodes_of
from refresher.ops.scan import SCAN_COUNT, KeyNames

FIND_SECONDS: Final = 10.0
MIN_DIGEST: Final = 6


def explain_keys(client: redis.Redis, keys: Sequence[CacheKey]) -> list[Explanation]:
    """Explain keys in one round trip per node; redis-py's errors pass through."""
    by_node: defaultdict[redis.Redis, list[CacheKey]] = defaultdict(list)
    for key in keys:
        by_node[node_of(client, key.entry)].append(key)
    explained: dict[CacheKey, Explanation] = {}
    for node, some in by_node.items():
        with node.pipeline(transaction=False) as pipeline:
            for key in some:
                for command in explain_reads(key):
                    pipeline.execute_command(*command)  # type: ignore[no-untyped-call] # as redis-py declares it
            found = pipeline.execute(raise_on_error=False)
        # Some replies may be errors, about a key of another type. A missing permission would look like a missing key.
        if refusal := next((reply for reply in found if isinstance(reply, NoPermissionError)), None):
            raise refusal
        replies = iter(found)
        explained |= {key: explanation(key, [next(replies) for _ in explain_reads(key)]) for key in some}
    return [explained[key] for key in keys]


def registered_versions(client: redis.Redis, namespace: str, query: str) -> frozenset[int]:
    """Return the versions of a query that workers have registered; redis-py's errors pass through."""
    members: list[bytes] = client.zrange(versions_key(namespace, query), 0, -1)  # type: ignore[assignment] # no text
    return versions_of(members)


def cached_versions(client: redis.Redis, key: CacheKey, versions: Iterable[int]) -> frozenset[int]:
    """Return those of ``versions`` in which ``key`` has an entry; redis-py's errors pass through."""
    return frozenset(one for one in versions if client.pttl(key_of_version(key, one).entry) != GONE)


def find_by_digest(client: redis.Redis, namespace: str, query: str, version: int, digits: str) -> CacheKey | None:
    """Find a key by the first hex digits of its digest, as shown by Flower and logs; return None if Redis has none.

    Scans all keys in small steps, for at most ten seconds.

    Raises:
        InvalidQuery: several keys begin with the digits, or not all could be scanned in time.
    """
    names, found = KeyNames(namespace), set[CacheKey]()
    deadline = time.monotonic() + FIND_SECONDS
    for node in nodes_of(client):
        cursor = -1
        while cursor:
            if time.monotonic() > deadline:
                raise InvalidQuery(
                    f"{digits} was not found within {FIND_SECONDS:g} s: give the params, or the key's name"
                )
            pattern = f"{namespace}:*{{{query}:{version}:{digits}*"
            some: list[bytes]
            cursor, some = node.scan(max(cursor, 0), match=pattern, count=SCAN_COUNT)  # type: ignore[assignment] # no text
            found.update(key for name in some if (key := names.key(name.decode(errors="replace"))) is not None)
    if len(found) > 1:
        raise InvalidQuery(f"{len(found)} keys of {query!r} begin with {digits}: give more digits")
    return next(iter(found), None)
