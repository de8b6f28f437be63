"""Source of triggers: stale entries, and a real reader that reads them."""

from __future__ import annotations

import time
from itertools import count, islice
from typing import Any, Final, Self

from api_client import CacheClient
from api_client.protocol.entry import Header, decode_header
from api_client.protocol.keys import CacheKey
from benchmarks.apparatus.entries import Published, Seeder, params_of
from benchmarks.apparatus.servers import Servers
from benchmarks.errors import BenchError

_TOGETHER: Final = 500
# Whole backlogs are published before they are worked off, which is no overload.
_QUEUE_SIZE: Final = 1_000_000
# Less than the minute for which the pool waits.
_PUBLISH_SECONDS: Final = 40.0
_LATE_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.02


class TriggerSource:
    """A reader of one query, for triggering each number once. A context manager."""

    def __init__(self, servers: Servers, query: str) -> None:
        self._query = query
        self._published = Published()
        self._client = CacheClient(servers.lenient_settings(queue_size=_QUEUE_SIZE), events=self._published)
        self._redis = servers.plain()
        self._seeder = Seeder(self._redis, servers.namespace, query=query)
        self._numbers = count()
        self.key = self._seeder.key

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._redis.close()

    def write_stale(self, how_many: int) -> list[int]:
        """Write this many entries that are already stale; return their numbers."""
        numbers = list(islice(self._numbers, how_many))
        self._seeder.put(numbers, soft_in_seconds=-1.0)
        return numbers

    def read(self, number: int) -> None:
        self._client.get(self._query, params_of(number))

    def trigger(self, numbers: list[int]) -> None:
        """Read all numbers, and return once all their refreshes have been published."""
        before, deadline = self._published.count, time.monotonic() + _PUBLISH_SECONDS
        while (published := self._published.count - before) < len(numbers):
            if time.monotonic() >= deadline:
                raise BenchError(f"{published} refreshes of {len(numbers)} were published")
            # Again, in case a stall of the machine kept one from being published; triggers are suppressed for 1 s.
            for at in range(0, len(numbers), _TOGETHER):
                self._client.get_many([(self._query, params_of(one)) for one in numbers[at : at + _TOGETHER]])
                self._client.flush(_PUBLISH_SECONDS)

    def check_refreshed(self, numbers: list[int]) -> None:
        """Check that all of them have been refreshed, as a rate of skipped messages would be no rate of refreshes."""
        late, deadline = [self.key(number) for number in numbers], time.monotonic() + _LATE_SECONDS
        while late := [key for key in late if not self._is_fresh(key)]:
            if time.monotonic() >= deadline:
                raise BenchError(f"{len(late)} of {len(numbers)} entries of {self._query!r} were not refreshed")
            time.sleep(_POLL_SECONDS)

    def span_seconds(self, numbers: list[int]) -> float:
        """Return the time from the start of their first load to the end of the last, by Redis' clock."""
        headers = [header for number in numbers if (header := self._header(self.key(number)))]
        began = min(header.read_started_us for header in headers)
        return (max(header.fetched_at_us for header in headers) - began) / 1e6

    def _is_fresh(self, key: CacheKey) -> bool:
        header = self._header(key)
        return header is not None and header.soft_expiry_us > self._seeder.now_us()

    def _header(self, key: CacheKey) -> Header | None:
        raw: Any = self._redis.get(key.entry)
        return None if raw is None else decode_header(raw, key.digest)
