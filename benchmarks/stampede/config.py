"""Configuration of a scenario, the same for all strategies."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import msgspec
import redis
import redis.asyncio

from benchmarks.apparatus.servers import Servers

CONFIG: Final = "BENCH_STAMPEDE_CONFIG"
GRACE_SECONDS: Final = 60.0
POOL_CONNECTIONS: Final = 64
POOL_WAIT_SECONDS: Final = 30.0
PROCESSES: Final = 4
"""Number of processes of a strategy's readers, unless each reader is a process."""


def pooled(url: str, *, on_loop: bool) -> Any:
    """Return a client whose threads or tasks wait for a connection if there are more of them than connections."""
    of: Any = redis.asyncio if on_loop else redis
    pool = of.BlockingConnectionPool.from_url(url, max_connections=POOL_CONNECTIONS, timeout=POOL_WAIT_SECONDS)
    return of.Redis(connection_pool=pool)


class Kind(StrEnum):
    """Kind of reader: a process each, threads in four processes, or asyncio tasks in four processes."""

    PROCESSES = "processes"
    THREADS = "threads"
    ASYNCIO = "asyncio"


@dataclass(frozen=True, slots=True)
class Config:
    """Configuration of one scenario.

    Attributes:
        servers: the servers, with passwords.
        expires_seconds: the time for which a value is fresh.
        delta_seconds: the pause that stands for a recompute.
        lease_seconds: the time for which a dead holder's lock lasts, if that can be set.
        beta: the β of XFetch.
    """

    servers: Servers
    expires_seconds: float
    delta_seconds: float
    lease_seconds: float
    beta: float = 1.0

    @property
    def hard_seconds(self) -> float:
        """Lifetime of a value in caches that serve stale ones."""
        return self.expires_seconds + GRACE_SECONDS

    def as_environ(self) -> dict[str, str]:
        """Return the configuration for a worker's environment, which may contain passwords."""
        return {CONFIG: msgspec.json.encode(self).decode()}

    @classmethod
    def from_environ(cls) -> Config:
        return msgspec.json.decode(os.environ[CONFIG], type=cls)


class Scenario(StrEnum):
    """Pattern of reads under which all strategies are compared."""

    WORKERS = "workers"
    """Readers that pause between two reads, for a minute, as in the classic harness."""
    HOT_KEY = "hot-key"
    """Reads at a high rate, in which the holder of the lease is killed in the middle of its work."""
    HERD = "herd"
    """All readers at the same moment, when the value expires, and when there is none."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Size of one scenario. Durations in seconds.

    Attributes:
        workers: the number of readers of each strategy.
        expires, delta, lease: see `Config`.
        seconds: the counted time.
        rate: the reads per second of all readers together; None for pauses of 10 ms to 1 s between two reads.
        concurrently: the number of strategies that run at the same time.
        rounds: the number of a stampede's rounds that count.
        lead: the time before the common start at which readers are told of it.
    """

    workers: int
    expires: float
    delta: float
    lease: float
    seconds: float = 0.0
    rate: float | None = None
    concurrently: int = 1
    rounds: int = 0
    lead: float = 0.0


# The first has the constants of the classic harness; the second a recompute of 200 ms and a lease of three times that,
# as is usual for leases.
FULL: Final = {
    Scenario.WORKERS: Scale(50, 20.0, 0.5, 5.0, seconds=60.0, concurrently=5),
    Scenario.HOT_KEY: Scale(256, 5.0, 0.2, 0.6, seconds=15.0, rate=20_000.0),
    Scenario.HERD: Scale(10_000, 2.0, 0.2, 5.0, rounds=3, lead=1.0),
}
QUICK: Final = {
    Scenario.WORKERS: Scale(6, 1.5, 0.1, 30.0, seconds=3.5, concurrently=10),
    Scenario.HOT_KEY: Scale(8, 1.5, 0.2, 0.6, seconds=4.0, rate=100.0, concurrently=11),
    Scenario.HERD: Scale(200, 0.5, 0.1, 30.0, rounds=1, lead=0.2),
}
