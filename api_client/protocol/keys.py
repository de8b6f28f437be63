"""The Redis keys of the cache, all built here.

=========================  =======  ==========================================================
key                        type     what
=========================  =======  ==========================================================
``ns:e1:{q:v:digest}``     string   the entry: header and payload (`entry`)
``ns:l1:{q:v:digest}``     hash     the lease record, while a refresh or a bookmark needs it (`lease`)
``ns:n1:{q:v:digest}``     channel  the notifications of commit, fail and invalidate
``ns:v1:{q}``              zset     versions that workers load, and how, by their ends (`live_versions`)
``ns:b1:{budget}:shares``  zset     loads in progress under the namespace's budget, by their ends (`budget`)
``ns:b1:{budget}:pace``    hash     its rate, and who waits; both also of a query, ``…:q``. Gone soon after a load
``ns:n1:tier``             channel  silent; subscribed to for its class of connections (`local.tracking`)
``ns:dead1``               zset     dead letters, newest last, bounded (`refresher.flow.dead_letters`)
``ns:c1``                  string   the tag clock: the number of the last invalidation of tags (`tags`)
``ns:t1:{digest}``         zset     a tag's index: its members, by when they may be forgotten, in µs
``ns:g1:{digest}``         hash     a tag's state: the last invalidations, their bookmarks, how far walks are
``ns:p1``                  zset     pending invalidations of tags, by when a worker may take them over, in µs
``ns:f1``                  string   the change feed's position in Neo4j's CDC, behind a digest of what is watched
``ns:s1``                  string   the change feed's state, by its consumer, for a month (`refresher.feed.state`)
=========================  =======  ==========================================================

The braces put an entry and its record in one cluster slot, and all budgets in another. A query's versions have a slot
of their own, as do a tag's index and state. The keys of tags have no expiry, so the eviction of expiring keys spares
them. The digit after the letter is the format's version, because readers and workers of two releases run at once.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from api_client.errors import InvalidQuery
from api_client.protocol.params import Params, canonical_params, plain, shown

MAX_VERSION: Final = 65_535
DIGEST_BYTES: Final = 16
REMEMBERED_KEYS: Final = 4_096
MAX_REMEMBERED_PARAMS: Final = 8
MAX_REMEMBERED_TEXT: Final = 256
MAX_REMEMBERED_PARAMS_TEXT: Final = 1_024

QUERY_NAME_PATTERN: Final = r"\A[A-Za-z_][A-Za-z0-9_.-]{0,99}\Z"
_QUERY_NAME = re.compile(QUERY_NAME_PATTERN, re.ASCII)
_REMEMBERED_TYPES: Final = frozenset((int, bool, type(None), UUID, date, Decimal))
_MEMBER = re.compile(rb"([A-Za-z_][A-Za-z0-9_.-]{0,99}):([1-9][0-9]{0,4}):(.{16})", re.DOTALL)

QUERY_NAME_ALLOWED: Final = "1 to 100 of A-Z a-z 0-9 _ . - and no digit, dot or dash first"
NAMESPACE_ALLOWED: Final = "1 to 64 of A-Z a-z 0-9 _ . -"


@dataclass(frozen=True, slots=True)
class CacheKey:
    """One (query, version, params), and the Redis keys and channel named after it.

    ``canonical_params`` is the params' JSON text, which messages carry too; ``digest`` is the 16-byte digest of query,
    version and params, whose first half is in the entry's header. Both are made once, in the reader, and travel with
    the key.
    """

    query: str
    version: int
    canonical_params: str
    digest: bytes
    entry: str
    record: str
    channel: str

    @property
    def namespace(self) -> str:
        """The namespace, which contains no colon."""
        return self.entry.partition(":")[0]

    @property
    def short(self) -> str:
        """The first 12 hex digits of the digest, for logs, Flower and people, because params may be sensitive."""
        return self.digest.hex()[:12]

    @property
    def params(self) -> dict[str, Any]:
        """The params, decoded from their canonical form."""
        decoded: dict[str, Any] = json.loads(self.canonical_params)
        return decoded


def make_key(namespace: str, query: str, params: Params | None, version: int) -> CacheKey:
    """Return the key of (query, version, params).

    The last few thousand keys with short, flat params are cached, because making a key takes longer than decoding an
    entry's header.

    Raises:
        InvalidQuery: the name is invalid, the version is outside 1 to 65,535, or the params are not JSON-like.
    """
    if type(query) is not str or type(version) is not int:
        # Other types are not cached either: an Enum's members may be equal and have different values.
        query, version = plain(query), plain(version)
    try:
        if params is None:
            return _remembered_key(namespace, query, version)
        if type(params) is dict:
            return _remembered_key(namespace, query, version, *params, *params.values())
    except (TypeError, _NotRemembered):  # TypeError: a value is not hashable
        pass
    return _new_key(namespace, query, params, version)


class _NotRemembered(Exception):
    """The params could be mistaken for others, or would take much memory."""


@lru_cache(maxsize=REMEMBERED_KEYS, typed=True)
def _remembered_key(namespace: str, query: str, version: int, *names_then_values: Any) -> CacheKey:
    """Make a key once for arguments that are equal and of the same types.

    Nested values are refused, because the cache does not compare types within them, and 1, 1.0 and True are equal. A
    refusal is not cached, so it is repeated.
    """
    half = len(names_then_values) // 2
    if half > MAX_REMEMBERED_PARAMS or not all(map(_is_remembered, names_then_values)):
        raise _NotRemembered
    params = dict(zip(names_then_values[:half], names_then_values[half:], strict=True))
    return _new_key(namespace, query, params, version)


def _is_remembered(value: object) -> bool:
    """Return whether every value of the same type that is equal to this one has the same canonical text."""
    match value:
        case str():
            return type(value) is str and len(value) <= MAX_REMEMBERED_TEXT
        case float():
            return type(value) is float and value != 0.0  # since -0.0 == 0.0
        case datetime():
            return type(value.tzinfo) is timezone  # other time zones may have an hour twice
    return type(value) in _REMEMBERED_TYPES


def _new_key(namespace: str, query: str, params: Params | None, version: int) -> CacheKey:
    query = check_query_name(query)
    version = check_version(query, version)
    return _canonical_key(namespace, query, version, canonical_params(query, params))


def _canonical_key(namespace: str, query: str, version: int, canonical: str) -> CacheKey:
    make = _digested_key if len(canonical) <= MAX_REMEMBERED_PARAMS_TEXT else _digested_key.__wrapped__
    return make(namespace, query, version, canonical)


@lru_cache(maxsize=REMEMBERED_KEYS)
def _digested_key(namespace: str, query: str, version: int, canonical: str) -> CacheKey:
    digest = hashlib.blake2b(f"{query}\n{version}\n{canonical}".encode(), digest_size=DIGEST_BYTES).digest()
    return _named(namespace, query, version, canonical, digest)


def key_of_version(key: CacheKey, version: int) -> CacheKey:
    """Return the key of the same query and params in another version.

    Raises:
        InvalidQuery: the version is outside 1 to 65,535.
    """
    return _canonical_key(key.namespace, key.query, check_version(key.query, version), key.canonical_params)


def key_of_digest(namespace: str, query: str, version: int, digest: bytes) -> CacheKey:
    """Return the key for a digest whose params are unknown; ``canonical_params`` is empty, so it can't be refreshed.

    Raises:
        InvalidQuery: the name is invalid.
    """
    return _named(namespace, check_query_name(query), version, "", digest)


def _named(namespace: str, query: str, version: int, canonical: str, digest: bytes) -> CacheKey:
    tag = f"{{{query}:{version}:{digest.hex()}}}"
    return CacheKey(
        query,
        version,
        canonical,
        digest,
        entry_prefix(namespace) + tag,
        f"{namespace}:l1:{tag}",
        f"{namespace}:n1:{tag}",
    )


def entry_prefix(namespace: str) -> str:
    """Return the prefix of all entries of a namespace, which no other key has."""
    return f"{namespace}:e1:"


def tier_channel(namespace: str) -> str:
    """Return the channel to which the links of in-process tiers subscribe; nothing is published on it."""
    return f"{namespace}:n1:tier"


def dead_letters_key(namespace: str) -> str:
    """Return the one bounded key that holds the dead letters of a namespace."""
    return f"{namespace}:dead1"


def versions_key(namespace: str, query: str) -> str:
    """Return the key that holds the live versions of a query."""
    return f"{namespace}:v1:{{{query}}}"


def budget_keys(namespace: str, query: str | None = None) -> tuple[str, str]:
    """Return the keys of a query's budget, or of the namespace's: shares and pace."""
    whose = "" if query is None else f":{query}"
    return f"{namespace}:b1:{{budget}}:shares{whose}", f"{namespace}:b1:{{budget}}:pace{whose}"


def tag_clock_key(namespace: str) -> str:
    """Return the key of the tag clock."""
    return f"{namespace}:c1"


def pending_tags_key(namespace: str) -> str:
    """Return the key that holds the pending invalidations of tags."""
    return f"{namespace}:p1"


def feed_position_key(namespace: str) -> str:
    """Return the key of the change feed's position."""
    return f"{namespace}:f1"


def feed_state_key(namespace: str) -> str:
    """Return the key of the change feed's state."""
    return f"{namespace}:s1"


def tag_index_key(namespace: str, tag: str) -> str:
    """Return the key of a tag's index."""
    return f"{namespace}:t1:{{{_tag_digest(tag)}}}"


def tag_state_key(namespace: str, tag: str) -> str:
    """Return the key of a tag's state, in the slot of its index."""
    return f"{namespace}:g1:{{{_tag_digest(tag)}}}"


def tag_pattern(namespace: str) -> str:
    """Return the pattern of all tag indexes and states of a namespace, which no other key matches."""
    return f"{namespace}:[tg]1:{{*}}"


def tag_pair_of(name: str) -> tuple[str, str]:
    """Return the keys of a tag's index and state, given either of them."""
    namespace, _, slot = name.split(":", 2)
    return f"{namespace}:t1:{slot}", f"{namespace}:g1:{slot}"


def _tag_digest(tag: str) -> str:
    return hashlib.blake2b(tag.encode(), digest_size=DIGEST_BYTES).hexdigest()


def tag_member(key: CacheKey) -> bytes:
    """Return the name of an entry in the indexes of its tags."""
    return f"{key.query}:{key.version}:".encode() + key.digest


def key_of_member(namespace: str, member: bytes) -> CacheKey | None:
    """Return the key of an index member, as `key_of_digest` does; None if the member is garbage."""
    found = _MEMBER.fullmatch(member)
    return None if found is None else _named(namespace, found[1].decode(), int(found[2]), "", found[3])


def check_version(query: str, version: object) -> int:
    """Return ``version`` as a plain int, checked to be a valid version of a query.

    Raises:
        InvalidQuery: it is not; the message states the allowed values.
    """
    if type(version) is int and 1 <= version <= MAX_VERSION:
        return version
    whole = plain(version)
    if isinstance(whole, bool) or not isinstance(whole, int) or not 1 <= whole <= MAX_VERSION:
        raise InvalidQuery(
            f"version {shown(whole)} of {query!r}: expected a whole number, 1 to {MAX_VERSION}", query=query
        )
    return whole


def check_query_name(query: object) -> str:
    """Return ``query`` as a plain str, checked to be a valid query name.

    Raises:
        InvalidQuery: it is not; the message states the allowed values.
    """
    if type(query) is not str:
        query = plain(query)
    if not isinstance(query, str) or not _is_query_name(query):
        raise InvalidQuery(f"{shown(query)} is not a query's name: expected {QUERY_NAME_ALLOWED}")
    return query


@lru_cache(maxsize=1_024)
def _is_query_name(text: str) -> bool:
    return _QUERY_NAME.fullmatch(text) is not None
