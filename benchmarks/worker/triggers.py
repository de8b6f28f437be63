"""Source of triggers: stale entries, and a real reader that reads them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count
from typing import Any, Final, Self

from api_client import CacheClient
from api_client.protocol.entry import Header, decode_header
from api_client.protocol.keys import CacheKey
from benchmarks.apparatus.entries import Published, Seeder, params_of
from benchmarks.apparatus.servers import Servers
from benchmarks.errors import BenchError

_TOGETHER: Final = 500
# Whole backlogs are published while nobody works them off, which is no overload.
_QUEUE_SIZE: Final = 1_000_000
# The pool waits for a minute.
_PUBLISH_SECONDS: Final = 40.0
_LATE_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.02


class TriggerSource:
    """A reader of one query. Each number is triggered once; a context manager."""

    def __init__(self, servers: Servers, query: str) -> None:
        self._query = query
        self._published = Published()
        self.client: CacheClient = CacheClient(servers.lenient_settings(queue_size=_QUEUE_SIZE), events=self._published)
        self._redis = servers.plain()
        self._seeder = Seeder(self._redis, servers.namespace, query=query)
        self._numbers: Iterator[int] = count()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self._redis.close()

    def write_stale(self, how_many: int) -> list[int]:
        """Write so many entries that are stale already; their numbers."""
        numbers = [next(self._numbers) for _ in range(how_many)]
        self._seeder.put(numbers, soft_in_seconds=-1.0)
        return numbers

    def key(self, number: int) -> CacheKey:
        return self._seeder.key(number)

    def read(self, number: int) -> None:
        """Read one, which asks for its refresh."""
        self.client.get(self._query, params_of(number))

    def trigger(self, numbers: list[int]) -> None:
        """Read them all, and be back when all their refreshes have been published.

        Raises:
            BenchError: they have not, within 40 seconds.
        """
        before, deadline = self._published.count, time.monotonic() + _PUBLISH_SECONDS
        while (published := self._published.count - before) < len(numbers):
            if time.monotonic() >= deadline:
                raise BenchError(f"{published} refreshes of {len(numbers)} were published")
            # Again where a machine that stood still kept one from being published: triggers are suppressed for 1 s.
            for at in range(0, len(numbers), _TOGETHER):
                self.client.get_many([(self._query, params_of(one)) for one in numbers[at : at + _TOGETHER]])
                self.client.flush(_PUBLISH_SECONDS)

    def check_refreshed(self, numbers: list[int]) -> None:
        """See that all of them have been refreshed: a rate of messages that were skipped would be none of refreshes.

        Raises:
            BenchError: some were not.
        """
        keys = [self.key(number) for number in numbers]
        deadline = time.monotonic() + _LATE_SECONDS
        while late := [key for key in keys if not self._is_fresh(key)]:
            if time.monotonic() >= deadline:
                raise BenchError(f"{len(late)} of {len(keys)} entries of {self._query!r} were not refreshed")
            time.sleep(_POLL_SECONDS)
            keys = late

    def span_seconds(self, numbers: list[int]) -> float:
        """Return the time from the begin of their first load to the end of the last one, by Redis' clock."""
        headers = [self._header(self.key(number)) for number in numbers]
        began = min(header.read_started_us for header in headers if header)
        return (max(header.fetched_at_us for header in headers if header) - began) / 1e6

    def _is_fresh(self, key: CacheKey) -> bool:
        header = self._header(key)
        return header is not None and header.soft_expiry_us > self._seeder.now_us()

    def _header(self, key: CacheKey) -> Header | None:
        raw: Any = self._redis.get(key.entry)
        return None if raw is None else decode_header(raw, key.digest)
