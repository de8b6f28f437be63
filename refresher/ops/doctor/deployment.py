"""The deployment under examination: its settings, and data that several checks share, obtained once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final, Self

import redis
from redis.exceptions import NoPermissionError

from api_client.config.broker_url import is_rabbitmq
from api_client.config.settings import ReaderSettings
from api_client.protocol.keys import CacheKey, make_key
from api_client.transport.redis_py import connect, node_of
from refresher.ops.broker import ReplacedKey
from refresher.ops.scan import KeysSeen, scan_keys
from refresher.settings import WorkerSettings

TIMEOUT_SECONDS: Final = 2.0
"""Timeout of each request to cache and broker."""
FULL_SHARE: Final = 0.99
"""Share of maxmemory above which a message may not fit, since Redis does not count some buffers."""


class Deployment:
    """Settings, clients that connect at their first use by a check, and data that several checks share.

    Attributes:
        worker, reader: the settings.
        as_reader: True if the users are a reader's, without operators' permissions.
        key: doctor's own key.
        cache, redis_broker: clients; the broker's is None if that is not a Redis.
        cache_run_id: the run id in the cache's INFO, once the check ``cache`` has read it.
        replaced_keys: the keys that the check ``broker's keys`` has found.
    """

    def __init__(self, worker: WorkerSettings, reader: ReaderSettings, *, as_reader: bool = False) -> None:
        self.worker: WorkerSettings = worker
        self.reader: ReaderSettings = reader
        self.as_reader: bool = as_reader
        self.key: CacheKey = make_key(worker.namespace, "refresher.doctor", None, 1)
        self.cache: redis.Redis = connect(worker.redis_url, timeout_seconds=TIMEOUT_SECONDS)
        self.redis_broker: redis.Redis | None = None
        if not is_rabbitmq(worker.broker_url):
            self.redis_broker = connect(worker.broker_url, timeout_seconds=TIMEOUT_SECONDS)
        self.cache_run_id: str = ""
        self.replaced_keys: list[ReplacedKey] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cache.close()
        if self.redis_broker is not None:
            self.redis_broker.close()

    @cached_property
    def node(self) -> redis.Redis:
        """A client of one node; in a cluster, of the node that has `key`."""
        return node_of(self.cache, self.key.entry)

    @cached_property
    def info(self) -> Mapping[str, Any]:
        """The INFO of `node`."""
        return dict(self.node.info())

    @property
    def keys(self) -> KeysSeen:
        """The result of a bounded scan of the keys.

        Raises:
            NoPermissionError: the user may not scan.
        """
        if self._scan.problem:
            raise NoPermissionError(self._scan.problem)
        return self._scan

    @cached_property
    def _scan(self) -> KeysSeen:
        return scan_keys(self.cache, self.worker.namespace)


def server_title(info: Mapping[str, Any]) -> str:
    """Return name and version of a Redis or Valkey from its INFO. Valkey also reports the Redis version it equals."""
    valkey = info.get("valkey_version")
    return f"Valkey {valkey}" if valkey else f"Redis {info['redis_version']}"


def used_share(info: Mapping[str, Any]) -> float:
    """Return the share of maxmemory that a Redis uses, from its INFO; 0 if it has no maxmemory."""
    bound = int(info.get("maxmemory", 0))
    return int(info.get("used_memory", 0)) / bound if bound else 0.0
