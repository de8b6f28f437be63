"""The cache's content by query, from a bounded scan of its keys: the names of many, the headers of a few.

SCAN goes through the keys in small steps, which now and then cost readers some tenths of a millisecond. Redis before
7.2 counts the reading of a header as an access, which affects eviction, so at most some hundreds are read.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

import redis
from redis.exceptions import NoPermissionError, ResponseError

from api_client.errors import InvalidQuery
from api_client.explain import left_seconds
from api_client.protocol.entry import Header, UnreadableEntry, decode_header, header_length
from api_client.protocol.keys import (
    DIGEST_BYTES,
    CacheKey,
    entry_prefix,
    key_of_digest,
    pending_tags_key,
    tag_index_key,
)
from api_client.protocol.lease import RecordState
from api_client.transport.redis_py import node_of, nodes_of
from refresher.feed.consumer import LEASE_KEY
from refresher.ops.budgets import budgeted_query, loads_in_progress

_ANY: Final = key_of_digest("n", "q", 1, bytes(DIGEST_BYTES))
_HEX_DIGITS: Final = 2 * DIGEST_BYTES


class KeyNames:
    """Parser of the names of a namespace's keys."""

    def __init__(self, namespace: str) -> None:
        self.namespace: str = namespace
        self.pattern: str = f"{namespace}:*"
        self._entry_prefix = entry_prefix(namespace)
        self._index_prefix = tag_index_key(namespace, "").partition("{")[0]
        self._record_prefix = namespace + _ANY.record.partition("{")[0].removeprefix("n")

    def query_of_entry(self, name: str) -> str | None:
        """Return the query of an entry's name, or None for any other name; quick, for many names."""
        if not name.startswith(self._entry_prefix):
            return None
        return name[len(self._entry_prefix) + 1 :].partition(":")[0]

    def is_record(self, name: str) -> bool:
        """Return whether a name is a lease record's."""
        return name.startswith(self._record_prefix)

    def is_tag_index(self, name: str) -> bool:
        """Return whether a name is a tag index's."""
        return name.startswith(self._index_prefix)

    def key(self, name: str) -> CacheKey | None:
        """Return the key of an entry's, record's or channel's name, or None if it is not of this namespace."""
        query, _, rest = name.partition("{")[2].removesuffix("}").partition(":")
        version, _, digest = rest.partition(":")
        if not version.isdecimal() or len(version) > len("65535") or len(digest) != _HEX_DIGITS:
            return None
        try:
            key = key_of_digest(self.namespace, query, int(version), bytes.fromhex(digest))
        except (InvalidQuery, ValueError):
            return None
        return key if name in {key.entry, key.record, key.channel} else None


SCAN_COUNT: Final = 1_000
DEFAULT_MAX_KEYS: Final = 100_000
SCAN_SECONDS: Final = 2.0
MAX_HEADERS: Final = 500
MAX_HEADERS_OF_QUERY: Final = 100
HEADER_BYTES: Final = 1_024
"""Bytes of a header to read at first, enough for most; the rest is read of those with many tags or bookmarks."""
MAX_RECORDS: Final = 2_000
MAX_SHOWN: Final = 10
MAX_INDEXES: Final = 200
"""Number of tags whose members are counted."""
OVERDUE_SECONDS: Final = 30.0
MAX_OVERDUE: Final = 1_000
_FIELDS: Final = ("state", "since", "until", "by", "claimed_at", "failures")
_UNDER_WAY: Final = frozenset({RecordState.QUEUED, RecordState.RUNNING, RecordState.RETRYING})


@dataclass(slots=True)
class QueryKeys:
    """Counts of a query's keys. Durations in seconds.

    ``keys`` counts entries, of which ``headers`` were read. Of these ``stale`` are past their soft expiry, for at most
    ``oldest_stale``, and ``lead`` is the median of their δ. The rest counts records by state: ``lapsed`` are those
    whose time has expired because a message or a worker was lost; ``longest_wait`` is the wait of the oldest queued
    one.
    """

    query: str
    keys: int = 0
    headers: int = 0
    stale: int = 0
    oldest_stale: float | None = None
    lead: float | None = None
    queued: int = 0
    running: int = 0
    retrying: int = 0
    cooling: int = 0
    quarantined: int = 0
    lapsed: int = 0
    longest_wait: float | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """A running load: ``key`` as Flower shows it, ``by`` the process, ``lasts`` the seconds since the claim."""

    query: str
    key: str
    by: str
    lasts: float


@dataclass(slots=True)
class TagsSeen:
    """Tags whose indexes a scan found: their number, their members, and the members of the largest.

    ``pending`` counts the unfinished invalidations of any tags, and ``overdue`` those of them that no worker has taken
    over in time.
    """

    indexes: int = 0
    members: int = 0
    largest: int = 0
    pending: int = 0
    overdue: int = 0


@dataclass(slots=True)
class KeysSeen:
    """The result of a scan. ``is_sample`` is True if not all of the ``keys_of_server`` were scanned.

    ``tags`` and ``budgets`` are None if this user may not see them. ``budgets`` has the loads in progress under a
    budget, by query or ``*`` for all, if there are any. ``problem`` is the reason for a missing scan. ``unreadable``
    counts the headers that no reader can read, by reason.
    """

    is_sample: bool = False
    keys_of_server: int | None = None
    queries: dict[str, QueryKeys] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    tags: TagsSeen | None = None
    budgets: dict[str, int] | None = None
    unreadable: dict[str, int] = field(default_factory=dict)
    problem: str = ""

    def of(self, query: str) -> QueryKeys:
        """Return the row of a query."""
        return self.queries.setdefault(query, QueryKeys(query))


def scan_keys(client: redis.Redis, namespace: str, *, max_keys: int = DEFAULT_MAX_KEYS) -> KeysSeen:
    """Scan at most about ``max_keys`` of a cache's keys.

    Raises:
        redis.exceptions.RedisError: Redis can't be used. A missing permission is a ``problem`` of the result.
    """
    seen, names = KeysSeen(), KeyNames(namespace)
    nodes = nodes_of(client)
    deadline = time.monotonic() + SCAN_SECONDS
    leads: defaultdict[str, list[float]] = defaultdict(list)
    indexes: list[str] = []
    budgeted: set[str] = set()
    counts = [_keys_of(node) for node in nodes]
    seen.keys_of_server = None if None in counts else sum(filter(None, counts))
    for node in nodes:
        found = _scanned(node, names, max_keys // len(nodes), deadline, seen)
        if seen.problem:
            return seen
        entries = [name for name in found if names.query_of_entry(name) is not None]
        for query, count in Counter(map(names.query_of_entry, entries)).items():
            seen.of(query or "").keys += count
        _read_headers(node, _sampled(entries, names), seen, leads)
        _read_records(node, [name for name in found if names.is_record(name)][:MAX_RECORDS], names, seen)
        indexes += filter(names.is_tag_index, found)
        budgeted.update(query for name in found if (query := budgeted_query(namespace, name)) is not None)
    for query, values in leads.items():
        seen.of(query).lead = median(values)
    seen.tags = _tags(client, namespace, indexes[:MAX_INDEXES])
    seen.budgets = _budgets(client, namespace, budgeted)
    seen.runs = sorted(seen.runs, key=lambda run: -run.lasts)[:MAX_SHOWN]
    return seen


def _scanned(node: redis.Redis, names: KeyNames, max_keys: int, deadline: float, seen: KeysSeen) -> list[str]:
    """Return names of keys, each once, in Redis' own order, which is independent of their kind."""
    found: dict[str, None] = {}
    cursor, steps_left = 0, max(1, max_keys // SCAN_COUNT)
    while steps_left and time.monotonic() < deadline:
        steps_left -= 1
        try:
            some: list[bytes]
            cursor, some = node.scan(cursor, match=names.pattern, count=SCAN_COUNT)  # type: ignore[assignment] # no text
        except NoPermissionError:
            seen.problem = "this user of CACHE_REDIS_URL may not SCAN"
            return []
        found.update(dict.fromkeys(name.decode(errors="replace") for name in some))
        if not cursor:
            return list(found)
    seen.is_sample = True
    return list(found)


def _keys_of(node: redis.Redis) -> int | None:
    """Return the number of all keys in the database, or None without the permission."""
    database = node.connection_pool.connection_kwargs.get("db") or 0
    try:
        of_database = node.info("keyspace").get(f"db{database}", {"keys": 0})
    except ResponseError:
        return None
    return int(of_database["keys"])


def _sampled(entries: Iterable[str], names: KeyNames) -> list[CacheKey]:
    """Return the keys whose headers to read, bounded per query and in total."""
    keys: list[CacheKey] = []
    taken = Counter[str | None]()
    for name in entries:
        query = names.query_of_entry(name)
        if taken[query] < MAX_HEADERS_OF_QUERY and (key := names.key(name)) is not None:
            taken[query] += 1
            keys.append(key)
            if len(keys) == MAX_HEADERS:
                break
    return keys


def _read_headers(
    node: redis.Redis, keys: Sequence[CacheKey], seen: KeysSeen, leads: defaultdict[str, list[float]]
) -> None:
    """Count the entries' headers, and add their δ to ``leads`` by query."""
    now_us, heads = _heads(node, dict.fromkeys(keys, HEADER_BYTES))
    longer = {key: length for key, head in heads.items() if (length := header_length(head)) > HEADER_BYTES}
    if longer:
        heads |= _heads(node, longer)[1]
    for key, header in _decoded(heads, seen.unreadable):
        row = seen.of(key.query)
        row.headers += 1
        leads[key.query].append(header.delta.mean)
        if header.is_stale(now_us):
            row.stale += 1
            row.oldest_stale = max(row.oldest_stale or 0.0, (now_us - header.soft_expiry_us) / 1e6)


def _heads(node: redis.Redis, lengths: Mapping[CacheKey, int]) -> tuple[int, dict[CacheKey, bytes]]:
    """Return Redis' time in µs, and the given number of first bytes of each entry that could be read."""
    with node.pipeline(transaction=False) as pipeline:
        pipeline.execute_command("CLIENT", "NO-TOUCH", "ON")  # type: ignore[no-untyped-call] # as redis-py declares it
        pipeline.time()
        for key, length in lengths.items():
            pipeline.getrange(key.entry, 0, length - 1)
        pipeline.execute_command("CLIENT", "NO-TOUCH", "OFF")  # type: ignore[no-untyped-call]
        _, (seconds, microseconds), *heads, _ = pipeline.execute(raise_on_error=False)
    now_us = int(seconds) * 1_000_000 + int(microseconds)
    return now_us, {key: head for key, head in zip(lengths, heads, strict=True) if isinstance(head, bytes)}


def _decoded(heads: Mapping[CacheKey, bytes], unreadable: dict[str, int]) -> Iterator[tuple[CacheKey, Header]]:
    for key, head in heads.items():
        try:
            header = decode_header(head, key.digest)
        except UnreadableEntry as error:
            if head and header_length(head) <= len(head):  # otherwise it has gone, or has more tags
                unreadable[error.reason] = unreadable.get(error.reason, 0) + 1
            continue
        if not header.is_handoff:
            yield key, header


def _read_records(node: redis.Redis, found: Sequence[str], names: KeyNames, seen: KeysSeen) -> None:
    keys = [key for name in found if (key := names.key(name)) is not None and key.query != LEASE_KEY]
    with node.pipeline(transaction=False) as pipeline:
        pipeline.time()
        for key in keys:
            pipeline.hmget(key.record, *_FIELDS)
        (seconds, microseconds), *replies = pipeline.execute(raise_on_error=False)
    now_us = int(seconds) * 1_000_000 + int(microseconds)
    for key, reply in zip(keys, replies, strict=True):
        if not isinstance(reply, Exception):
            _count_record(key, [(part or b"").decode(errors="replace") for part in reply], now_us, seen)


def _count_record(key: CacheKey, fields: Sequence[str], now_us: int, seen: KeysSeen) -> None:
    state, since, until, by, claimed_at, failures = fields
    if state not in _UNDER_WAY and state != RecordState.COOLING:
        return
    row = seen.of(key.query)
    if not left_seconds(_number(since), _number(until), now_us):
        row.lapsed += state in _UNDER_WAY
        return
    seconds = max(0.0, (now_us - _number(claimed_at)) / 1e6) if _number(claimed_at) else 0.0
    setattr(row, state, getattr(row, state) + 1)
    if state == RecordState.QUEUED:
        row.longest_wait = max(row.longest_wait or 0.0, seconds)
    elif state == RecordState.RUNNING:
        seen.runs.append(Run(key.query, key.short, by, seconds))
    elif state == RecordState.COOLING:
        row.quarantined += _number(failures) > 1


def _budgets(client: redis.Redis, namespace: str, queries: Iterable[str]) -> dict[str, int] | None:
    try:
        return loads_in_progress(client, namespace, sorted(queries))
    except ResponseError:  # as below
        return None


def _tags(client: redis.Redis, namespace: str, indexes: Sequence[str]) -> TagsSeen | None:
    try:
        sizes = [int(client.zcard(name)) for name in indexes]
        pending = pending_tags_key(namespace)
        seconds, microseconds = node_of(client, pending).time()
        late_us = int((seconds - OVERDUE_SECONDS) * 1e6) + microseconds
        overdue = client.zrangebyscore(pending, "-inf", late_us, 0, MAX_OVERDUE)
        return TagsSeen(len(sizes), sum(sizes), max(sizes, default=0), int(client.zcard(pending)), len(overdue))
    except ResponseError:  # the permission is missing, or the key holds something else
        return None


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
