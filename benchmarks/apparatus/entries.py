"""Cached values of 1 KiB, and entries written as by a commit, fresh or stale, without a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final, TypeAlias, cast

import msgspec
import redis

from api_client import ReaderEvents, RefreshReason
from api_client.protocol import entry
from api_client.protocol.entry import Header, Smoothed
from api_client.protocol.keys import CacheKey, make_key
from refresher.graph import values

Value: TypeAlias = Any

ROWS: Final = 10
DESCRIBED: Final = f"{ROWS} rows of 6 fields, 1 KiB in all"
_FIRST_ID: Final = 10_000_000  # so that every id takes the same number of bytes


class Row(msgspec.Struct, frozen=True):
    """A row as an immutable type."""

    id: int
    name: str
    mail: str
    city: str
    since: int
    weight: float


FROZEN: Final[Any] = tuple[Row, ...]
"""Immutable type of a value."""


def rows_of(number: int) -> Value:
    """Return the value of a number, like the result of a graph query."""
    first = _FIRST_ID + number * ROWS
    return [
        {
            "id": row,
            "name": f"Person no {row}",
            "mail": f"p{row}@example.org",
            "city": "Rotterdam",
            "since": 1_500_000_000 + row,
            "weight": 0.5 + row / 16,
        }
        for row in range(first, first + ROWS)
    ]


QUERY: Final = "friends_of"
DELTA_SECONDS: Final = 0.2
TTL_SECONDS: Final = 3_600.0
GRACE_SECONDS: Final = 3_600.0
_BATCH: Final = 1_000
_MAX_BYTES: Final = 2**20


def params_of(number: int) -> dict[str, Any]:
    """Return the params of the entry with this number, as an application would write them."""
    return {"person_id": number}


def payload_of(value: Value) -> bytes:
    """Return the payload of a value, as a worker would encode it."""
    return values.encode(value, query=QUERY, max_bytes=_MAX_BYTES).content


class Seeder:
    """Writes entries of a query by number, each with the value and the params of its number."""

    def __init__(
        self,
        client: redis.Redis,
        namespace: str,
        value_of: Callable[[int], Value] = rows_of,
        query: str = QUERY,
        params: Callable[[int], dict[str, Any]] = params_of,
    ) -> None:
        self._client, self._namespace, self._value_of, self._query = client, namespace, value_of, query
        self._params = params

    def key(self, number: int) -> CacheKey:
        return make_key(self._namespace, self._query, self._params(number), 1)

    def put(self, numbers: Iterable[int], *, soft_in_seconds: float = TTL_SECONDS) -> None:
        """Write these numbers' entries, as if loaded one TTL before their soft expiry; stale if that is negative."""
        soft_expiry_us, remaining = self.now_us() + int(soft_in_seconds * 1e6), iter(numbers)
        while batch := list(islice(remaining, _BATCH)):
            pipeline = self._client.pipeline(transaction=False)
            for number in batch:
                key = self.key(number)
                header = header_of(soft_expiry_us, TTL_SECONDS, DELTA_SECONDS, number=number)
                raw = entry.encode(header, key.digest, payload_of(self._value_of(number)))
                pipeline.set(key.entry, raw, px=int((max(soft_in_seconds, 0.0) + GRACE_SECONDS) * 1000))
            pipeline.execute()

    def raw(self, number: int) -> bytes:
        return cast("bytes", self._client.get(self.key(number).entry))

    def now_us(self) -> int:
        seconds, microseconds = self._client.time()
        return seconds * 1_000_000 + microseconds


def header_of(
    soft_expiry_us: int, ttl_seconds: float, delta_seconds: float, *, number: int = 0, beta: float = 1.0,
    degree: int = 0,
) -> Header:  # fmt: skip
    """Return the header of a commit one TTL before this soft expiry."""
    fetched_at_us = soft_expiry_us - int(ttl_seconds * 1e6)
    took = Smoothed(delta_seconds, delta_seconds / 4)
    return Header(
        token=fetched_at_us, generation=0, soft_expiry_us=soft_expiry_us, nonce=number.to_bytes(8, "big"),
        read_started_us=fetched_at_us - int(delta_seconds * 1e6), fetched_at_us=fetched_at_us,
        ttl_seconds=ttl_seconds, delta=took, run=took, beta=beta, degree=degree, sigma=1.0,
    )  # fmt: skip


class Published(ReaderEvents):
    """Counts publications, since a run without any does not measure triggers."""

    def __init__(self) -> None:
        self.count: int = 0

    def refresh_triggered(self, query: str, *, reason: RefreshReason) -> None:
        """Count a publication, on the publisher's thread."""
        self.count += 1
