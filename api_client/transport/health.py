"""NodeHealth of a Redis as readers and workers know it: whether it answers, and what time it has. No I/O."""

from __future__ import annotations

import sys
from typing import Any

from redis.exceptions import ClusterDownError, ConnectionError, RedisError, ResponseError, TimeoutError

from api_client.errors import CacheUnavailable
from api_client.protocol.clock import RedisClock
from api_client.transport.breaker import Breaker
from api_client.transport.pool import AllInUse, SlowReply
from api_client.transport.wire import is_wrong_node, is_wrong_type, pack, reason

TIME_REQUEST = pack("TIME")


class NodeHealth:
    """The breaker and the clock of one node. Those who send call `check` before, and report what came.

    Args:
        breaks: whether the breaker opens; a link that is patient has none.
    """

    def __init__(self, *, breaks: bool = True) -> None:
        self.clock: RedisClock = RedisClock()
        self.breaker: Breaker = Breaker() if breaks else Breaker(threshold=sys.maxsize)

    def check(self, query: str | None) -> None:
        """Refuse at once while the breaker is open, after repeated failures.

        Raises:
            CacheUnavailable: it is.
        """
        if not self.breaker.allows():
            raise CacheUnavailable(
                "the cache's Redis (CACHE_REDIS_URL) failed repeatedly, and is not tried again yet: "
                + self.breaker.reason,
                query=query,
            )

    def failure(self, error: Exception, query: str | None) -> CacheUnavailable:
        """Record what was raised or replied, and return the error for the caller; its cause is ``error``."""
        if isinstance(error, AllInUse | SlowReply):
            return self._unavailable(str(error), error, query)
        # A reply, even a refusal (out of memory, say), is no reason to stop asking: reads may go on well.
        if isinstance(error, ConnectionError | TimeoutError | OSError):
            self.breaker.failed(reason(error))
            self.clock.forget()
        elif is_wrong_node(error):
            self.clock.forget()
        else:
            self.breaker.succeeded()
        return self._unavailable(reason(error), error, query)

    def _unavailable(self, why: str, error: Exception, query: str | None) -> CacheUnavailable:
        unavailable = CacheUnavailable(f"the cache's Redis (CACHE_REDIS_URL) can't be used: {why}", query=query)
        unavailable.__cause__ = error
        return unavailable

    def entry_of(self, reply: Any, query: str) -> bytes | None:
        """Read a GET's reply: the entry's bytes, None where there is none, ``b""`` where the key is no string.

        Raises:
            CacheUnavailable: an error reply.
        """
        if reply.__class__ is not bytes and isinstance(reply, RedisError):
            if is_wrong_type(reply):
                self.breaker.succeeded()
                return b""
            raise self.failure(reply, query)
        self.breaker.succeeded()
        entry: bytes | None = reply
        return entry

    def set_clock(self, reply: Any, *, asked_at: float) -> None:
        """Take over TIME's reply to a request of ``asked_at`` (monotonic seconds).

        Raises:
            CacheUnavailable: an error reply.
        """
        if isinstance(reply, RedisError):
            raise self.failure(reply, None)
        self.breaker.succeeded()
        whole_seconds, microseconds = reply
        self.clock.sync(int(whole_seconds) * 1_000_000 + int(microseconds), asked_at=asked_at)


def cause_of(error: Exception) -> BaseException | None:
    """Return what was met where ``error`` is the caller's own, of `NodeHealth`; None: nothing was tried."""
    return error.__cause__ if isinstance(error, CacheUnavailable) else error


def is_outage(reply: object) -> bool:
    """Return whether no node has done what was sent: silence, a lost connection, a node that is down or loads its data.

    Another node may, or this one later. Any other refusal is the node's own.
    """
    if not isinstance(reply, Exception):
        return False
    cause = cause_of(reply)
    # Without a cause the breaker is open, or no node is known.
    return isinstance(cause, ClusterDownError) or not isinstance(cause, ResponseError)
