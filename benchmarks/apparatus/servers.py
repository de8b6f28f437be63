"""Servers of a run: one embedded Redis as cache, another as broker."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import redis

from api_client import ReaderSettings
from api_client.transport.redis_py import connect, nodes_of
from refresher.embedded import RedisServer
from refresher.ops.doctor.deployment import server_title

_PATIENCE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers of a run.

    Attributes:
        cache_url, broker_url: the URLs, with passwords.
        control_url: the URL of a database on the broker's server for loaders' marks.
        version: the version of the cache's server.
        namespace: the prefix of all keys that the benchmark writes into the cache.
    """

    cache_url: str
    broker_url: str
    control_url: str
    version: str
    namespace: str

    @property
    def environ(self) -> dict[str, str]:
        """The worker's environment variables for the servers, including passwords."""
        return {
            "CACHE_REDIS_URL": self.cache_url,
            "CACHE_BROKER_URL": self.broker_url,
            "CACHE_NAMESPACE": self.namespace,
        }

    @property
    def versions(self) -> dict[str, str]:
        """The cache's server, for the provenance of a run."""
        return {"server": f"{self.version}, embedded"}

    def settings(self, **changes: Any) -> ReaderSettings:
        """Return a reader's settings for these servers: the defaults with ``changes``."""
        here = {"redis_url": self.cache_url, "broker_url": self.broker_url, "namespace": self.namespace}
        return ReaderSettings(**(here | changes))

    def lenient_settings(self, **changes: Any) -> ReaderSettings:
        """Return a reader's settings with a long timeout, for timing single reads.

        A stall of a busy machine for a quarter of a second should show in a percentile, not end the run.
        """
        return self.settings(redis_timeout_seconds=_PATIENCE_SECONDS, **changes)

    def plain(self) -> redis.Redis:
        """Return a redis-py client of the cache, for writing entries and querying the server, not for measuring."""
        return connect(self.cache_url, timeout_seconds=_PATIENCE_SECONDS)

    def control(self) -> redis.Redis:
        """Return a redis-py client of the database for marks."""
        return connect(self.control_url, timeout_seconds=_PATIENCE_SECONDS)


@contextmanager
def running_servers() -> Iterator[Servers]:
    """Start the servers."""
    with RedisServer.start() as cache, RedisServer.start() as broker:
        with connect(cache.url(0), timeout_seconds=_PATIENCE_SECONDS) as client:
            version = server_title(nodes_of(client)[0].info("server"))
        namespace = f"bench-{secrets.token_hex(4)}"
        yield Servers(cache.url(0), broker.url(0), broker.url(1), version, namespace)
