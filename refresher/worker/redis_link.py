"""A worker's link to the cache, which waits for Redis for some seconds: a worker can, and each step may be repeated.

Steps go over the links that readers use, also on a cluster: redis-py's pool and command layer cost as much as the step.
All else (dead letters, streams, scans) goes through redis-py.
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
_BACKOFF: Final = ExponentialWithJitterBackoff(base=0.05, cap=1.0)  # it has no state


class RetryingLink:
    """The connections of one worker process. Thread-safe; never shared with a forked child.

    Attributes:
        client: redis-py's, for all that is no step.
        store: runs steps; what is not answered is sent again for ten seconds.
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
        """Repeat all of an exchange until it is answered: each step may be. Loading, say, is no answer: it passes.

        Nor is that a slot is on its way, or another client's script under way.
        """
        deadline, failures = monotonic_seconds() + PATIENCE_SECONDS, 0
        while True:
            replies = exchange()
            if self._has_one_node and any(map(is_wrong_node, replies)):
                # A master that has become a replica answers on as before, and refuses each step: connections made anew
                # lead to whoever is master at this address now. Those in use go when they are refused themselves.
                self.client.connection_pool.disconnect(inuse_connections=False)
            if until([_is_answer(reply) for reply in replies]) or monotonic_seconds() >= deadline:
                return replies
            failures += 1
            sleep(_BACKOFF.compute(failures))


def _is_answer(reply: object) -> bool:
    return not isinstance(reply, Exception) or not (is_outage(reply) or is_transient(cause_of(reply)))
