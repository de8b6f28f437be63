"""The state of one key in Redis, field by field: its entry's header, its lease record, its dead letters. No values.

What the state of keys means for their next reads, `explain_keys` reports in the words of `api_client.explain`.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import redis
from redis.exceptions import NoPermissionError

from api_client.errors import InvalidQuery
from api_client.explain import GONE, Explanation, explain_reads, explanation
from api_client.protocol.entry import FORMAT_VERSION, MAX_HEADER_BYTES, Header, UnreadableEntry, decode_header
from api_client.protocol.keys import CacheKey, key_of_version, versions_key
from api_client.protocol.live_versions import versions_of
from api_client.transport.redis_py import node_of, nodes_of
from refresher.flow.dead_letters import DeadLetters
from refresher.ops.scan import SCAN_COUNT, KeyNames

FIND_SECONDS: Final = 10.0
MIN_DIGEST: Final = 6
_HIDDEN: Final = frozenset({"nonce"})
"""With token and nonce anyone who may run the scripts could commit."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """The state of a key. Durations in seconds, times in µs of Redis' clock.

    ``entry`` has its header's fields, ``record`` those of the lease record, ``dead_letters`` the ids of the key's.
    ``unreadable`` is the reason why an entry can't be read. ``entry_left`` and ``record_left`` are the times until
    Redis drops them; None: it never does.
    """

    key: CacheKey
    now_us: int
    is_there: bool
    entry: Mapping[str, Any]
    entry_left: float | None
    unreadable: str
    record: Mapping[str, str]
    record_left: float | None
    dead_letters: tuple[str, ...]


def inspect_key(client: redis.Redis, namespace: str, key: CacheKey) -> Inspection:
    """Return the state of a key; errors of Redis come as redis-py raises them."""
    with node_of(client, key.entry).pipeline(transaction=False) as pipeline:
        pipeline.time()
        pipeline.getrange(key.entry, 0, MAX_HEADER_BYTES)
        pipeline.strlen(key.entry)
        pipeline.pttl(key.entry)
        pipeline.hgetall(key.record)
        pipeline.pttl(key.record)
        now, head, size, entry_ms, record, record_ms = _unrefused(pipeline.execute(raise_on_error=False))
    for reply in (now, entry_ms, record_ms):
        if isinstance(reply, Exception):
            raise reply
    letters = DeadLetters(client, namespace).newest()
    entry, unreadable = _entry(key, head, size) if entry_ms != GONE else ({}, "")
    return Inspection(
        key=key,
        now_us=int(now[0]) * 1_000_000 + int(now[1]),
        is_there=entry_ms != GONE,
        entry=entry,
        entry_left=_left(entry_ms),
        unreadable=unreadable,
        record={} if isinstance(record, Exception) else _fields(record),
        record_left=_left(record_ms),
        dead_letters=tuple(
            one.id for one in letters
            if (one.query, one.version, one.digest) == (key.query, key.version, key.digest.hex())
        ),
    )  # fmt: skip


def explain_keys(client: redis.Redis, keys: Sequence[CacheKey]) -> list[Explanation]:
    """Explain keys, in one round trip per node; errors of Redis come as redis-py raises them."""
    by_node: defaultdict[redis.Redis, list[CacheKey]] = defaultdict(list)
    for key in keys:
        by_node[node_of(client, key.entry)].append(key)
    explained: dict[CacheKey, Explanation] = {}
    for node, some in by_node.items():
        with node.pipeline(transaction=False) as pipeline:
            for key in some:
                for command in explain_reads(key):
                    pipeline.execute_command(*command)  # type: ignore[no-untyped-call] # as redis-py declares it
            replies = iter(_unrefused(pipeline.execute(raise_on_error=False)))
        explained |= {key: explanation(key, [next(replies) for _ in explain_reads(key)]) for key in some}
    return [explained[key] for key in keys]


def registered_versions(client: redis.Redis, namespace: str, query: str) -> frozenset[int]:
    """Return the versions of a query that workers have registered; errors of Redis come as redis-py raises them."""
    members: list[bytes] = client.zrange(versions_key(namespace, query), 0, -1)  # type: ignore[assignment] # no text
    return versions_of(members)


def cached_versions(client: redis.Redis, key: CacheKey, versions: Iterable[int]) -> frozenset[int]:
    """Return those of ``versions`` in which ``key`` has an entry; errors of Redis come as redis-py raises them."""
    return frozenset(one for one in versions if client.pttl(key_of_version(key, one).entry) != GONE)


def _unrefused(replies: list[Any]) -> list[Any]:
    """Return replies, of which some may be errors (a key of another type): but not for want of a permission.

    Raises:
        NoPermissionError: what the user may not look at would be shown as if it were not there.
    """
    for reply in replies:
        if isinstance(reply, NoPermissionError):
            raise reply
    return replies


def find_by_digest(client: redis.Redis, namespace: str, query: str, version: int, digits: str) -> CacheKey | None:
    """Find a key by the first hex digits of its digest, as Flower and logs show them; None: there is none in Redis.

    Scans all keys in small steps, for ten seconds at most.

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


def _left(milliseconds: int) -> float | None:
    return milliseconds / 1_000 if milliseconds >= 0 else None


def _entry(key: CacheKey, head: Any, size: Any) -> tuple[dict[str, Any], str]:
    if isinstance(head, Exception):
        return {}, "another type"
    try:
        header = decode_header(head, key.digest)
    except UnreadableEntry as error:
        return {"bytes": size}, error.reason
    return {"bytes": size, **_header(header, size)}, ""


def _header(header: Header, size: int) -> dict[str, Any]:
    return {
        "format": FORMAT_VERSION,
        "header_bytes": header.length,
        "payload_bytes": size - header.length,
        "compressed": header.is_compressed,
        "handoff": header.is_handoff,
        "token": header.token,
        "generation": header.generation,
        "read_started": header.read_started_us,
        "fetched": header.fetched_at_us,
        "soft_expiry": header.soft_expiry_us,
        "ttl": header.ttl_seconds,
        "delta": header.delta.mean,
        "delta_deviation": header.delta.deviation,
        "delta_samples": list(header.delta_samples),
        "run": header.run.mean,
        "run_deviation": header.run.deviation,
        "beta": header.beta,
        "degree": header.degree,
        "sigma": header.sigma,
        "draw_digits": header.draw_digits,
        "bookmarks": len(header.bookmarks),
    }


def _fields(record: Mapping[bytes, bytes]) -> dict[str, str]:
    named = {name.decode(errors="replace"): value for name, value in record.items()}
    shown = {name: value.decode(errors="replace") for name, value in named.items() if name not in _HIDDEN}
    for name in ("bookmarks", "bookmarks_before", "claim_bookmarks"):
        if shown.get(name):
            shown[name] = str(shown[name].count("\n") + 1)
    return dict(sorted(shown.items()))
