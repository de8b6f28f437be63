"""A worker's link to the cache, which waits for Redis for some seconds: a worker can, and each step may be repeated.

Steps go over thin connections, as all of a reader's do: redis-py's pool and command layer cost as much as the step. The
rest, and all on a cluster, goes through redis-py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import redis
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import ConnectionError, TimeoutError
from redis.retry import Retry

from api_client.config.redis_url import Topology, read_url
from api_client.protocol.clock import monotonic_seconds
from api_client.protocol.lease import Call
from api_client.transport.pool import Connections
from api_client.transport.redis_py import WORKER, connect, connection_maker, translated
from api_client.transport.scripts import CommandExecutor, LeaseStore, PooledExecutor
from api_client.transport.sentinel import MasterAddress
from api_client.transport.wire import Command

T = TypeVar("T")

TIMEOUT_SECONDS: Final = 2.0
REPLY_SECONDS: Final = 30.0
PATIENCE_SECONDS: Final = 10.0
_PASSES: Final = (ConnectionError, TimeoutError)
_FOR_EVER: Final = -1


class TranslatingStore:
    """The lease store, with Redis' errors translated."""

    def __init__(self, store: LeaseStore) -> None:
        self._store = store

    def run(self, call: Call[T]) -> T:
        """Run one step.

        Raises:
            CacheUnavailable: also after several tries.
        """
        with translated():
            return self._store.run(call)


class WorkerLink:
    """The connections of one worker process. Thread-safe; never shared with a forked child.

    Attributes:
        client: redis-py's, for all that is no step.
        store: runs steps.
    """

    def __init__(self, url: str) -> None:
        known = MasterAddress()
        self.client: redis.Redis = connect(
            url, timeout_seconds=TIMEOUT_SECONDS, retry=Retry(_backoff(), 5, supported_errors=_PASSES), known=known
        )
        self._thin = None if read_url(url).topology is Topology.CLUSTER else RetryingExecutor(url, known)
        self.store: LeaseStore = (
            LeaseStore(self.client) if self._thin is None else LeaseStore(self._thin, on_read_only=self._leave_node)
        )

    def close(self) -> None:
        """Close the connections."""
        if self._thin is not None:
            self._thin.close()
        self.client.close()

    def _leave_node(self) -> None:
        # A master that has become a replica answers on as before, and refuses each step: connections made anew lead to
        # whoever is master at this address now. Those in use go when they are refused themselves.
        self.client.connection_pool.disconnect(inuse_connections=False)
        if self._thin is not None:
            self._thin.leave()


class RetryingExecutor(CommandExecutor):
    """Thin connections on which all is sent again until it is answered or ten seconds have passed."""

    def __init__(self, url: str, known: MasterAddress) -> None:
        self._make = connection_maker(url, timeout_seconds=TIMEOUT_SECONDS, known=known, who=WORKER)
        self._connections = Connections(self._make, timeout_seconds=TIMEOUT_SECONDS, reply_seconds=REPLY_SECONDS)
        self._way = PooledExecutor(self._make, self._connections)
        known.on_change(self._connections.leave)
        self._retry = Retry(_backoff(), _FOR_EVER, supported_errors=_PASSES)

    def ask(self, command: Command) -> Any:
        """Send one command and return its reply."""
        return self._patiently(lambda: self._way.ask(command))

    def ask_all(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands with one write; all of them again where one was told that this passes, as while Redis loads."""

        def once() -> list[Any]:
            replies = self._way.ask_all(commands)
            for reply in replies:
                if isinstance(reply, _PASSES):
                    raise reply
            return replies

        return self._patiently(once)

    def _patiently(self, once: Callable[[], T]) -> T:
        deadline = monotonic_seconds() + PATIENCE_SECONDS
        return self._retry.call_with_retry(once, lambda _: None, lambda _: monotonic_seconds() < deadline)

    def leave(self) -> None:
        """Leave the node: the next command connects anew."""
        self._connections.leave()

    def close(self) -> None:
        """Close the connections."""
        self._connections.leave()
        self._make.close()


def _backoff() -> ExponentialWithJitterBackoff:
    return ExponentialWithJitterBackoff(base=0.05, cap=1.0)
