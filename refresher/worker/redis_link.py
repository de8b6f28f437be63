"""A worker's link to the cache, which waits for Redis for some seconds, since each step may be repeated.

Steps go over the same links as readers', even on a cluster, because redis-py's pool and command layer cost as much as a
step. Everything else (dead letters, streams, scans) goes through redis-py.
"""

from __future__ import annotations

from collections.abc import Callable
from time import sleep
from typing import Any, Final

import redis
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import ConnectionError, TimeoutError
from redis.retry import Retry

from api_client.config.redis_url import Topology, read_url
from api_client.protocol.clock import monotonic_seconds
from api_client.transport.connection_maker import WORKER
from api_client.transport.health import cause_of, is_outage
from api_client.transport.link import CacheLink
from api_client.transport.redis_py import connect
from api_client.transport.scripts import Until
from api_client.transport.wire import is_transient, is_wrong_node

TIMEOUT_SECONDS: Final = 2.0
REPLY_SECONDS: Final = 30.0
PATIENCE_SECONDS: Final = 10.0
_BACKOFF: Final = ExponentialWithJitterBackoff(base=0.05, cap=1.0)  # it is stateless


class RetryingLink:
    """The connections of one worker process. Thread-safe; never shared with a forked child.

    Attributes:
        client: a client of redis-py, for everything but steps.
        store: runs steps, and sends unanswered ones again for ten seconds.
    """

    def __init__(self, url: str) -> None:
        self.store: CacheLink = CacheLink(url, TIMEOUT_SECONDS, REPLY_SECONDS, role=WORKER, patience=self._patiently)
        self.client: redis.Redis = connect(
            url,
            timeout_seconds=TIMEOUT_SECONDS,
            retry=Retry(_BACKOFF, 5, supported_errors=(ConnectionError, TimeoutError)),
            known=self.store.routes.master,
        )
        self._has_one_node = read_url(url).topology is not Topology.CLUSTER

    def close(self) -> None:
        """Close the connections."""
        self.store.close()
        self.client.close()

    def _patiently(self, exchange: Callable[[], list[Any]], until: Until) -> list[Any]:
        """Repeat a whole exchange until it is answered. A reply such as LOADING is no answer, since it passes.

        Nor is one about a slot in migration, or about another client's script in progress.
        """
        deadline, failures = monotonic_seconds() + PATIENCE_SECONDS, 0
        while True:
            replies = exchange()
            if self._has_one_node and any(map(is_wrong_node, replies)):
                # A demoted master goes on answering, but refuses each step; new connections lead to the present master
                # at this address. Connections in use are dropped when they are refused themselves.
                self.client.connection_pool.disconnect(inuse_connections=False)
            if until([_is_answer(reply) for reply in replies]) or monotonic_seconds() >= deadline:
                return replies
            failures += 1
            sleep(_BACKOFF.compute(failures))


def _is_answer(reply: object) -> bool:
    return not isinstance(reply, Exception) or not (is_outage(reply) or is_transient(cause_of(reply)))
