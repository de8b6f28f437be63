"""The health of a Redis node as readers and workers know it: its breaker and its clock. No I/O."""

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
    """The breaker and clock of one node. A sender calls `check` first, and then reports the result.

    Args:
        breaks: whether the breaker ever opens; False for a patient link.
    """

    def __init__(self, *, breaks: bool = True) -> None:
        self.clock: RedisClock = RedisClock()
        self.breaker: Breaker = Breaker() if breaks else Breaker(threshold=sys.maxsize)

    def check(self, query: str | None) -> None:
        """Refuse a call while the breaker is open after repeated failures.

        Raises:
            CacheUnavailable: the breaker is open.
        """
        if not self.breaker.allows():
            raise CacheUnavailable(
                "the cache's Redis (CACHE_REDIS_URL) failed repeatedly, and is not tried again yet: "
                + self.breaker.reason,
                query=query,
            )

    def failure(self, error: Exception, query: str | None) -> CacheUnavailable:
        """Record an exception or an error reply, and return the error for the caller, caused by ``error``."""
        if isinstance(error, AllInUse | SlowReply):
            return self._unavailable(str(error), error, query)
        # A reply, even a refusal (out of memory, say), is no reason to stop asking: reads may still succeed.
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
        """Interpret a GET's reply: the entry's bytes, None if there is none, ``b""`` if the key is no string.

        Raises:
            CacheUnavailable: it is an error reply.
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
        """Sync the clock with the reply to a TIME sent at ``asked_at`` (monotonic seconds).

        Raises:
            CacheUnavailable: it is an error reply.
        """
        if isinstance(reply, RedisError):
            raise self.failure(reply, None)
        self.breaker.succeeded()
        whole_seconds, microseconds = reply
        self.clock.sync(int(whole_seconds) * 1_000_000 + int(microseconds), asked_at=asked_at)


def cause_of(error: Exception) -> BaseException | None:
    """Return the cause of an error of `NodeHealth`, or another error itself; None if nothing was tried."""
    return error.__cause__ if isinstance(error, CacheUnavailable) else error


def is_outage(reply: object) -> bool:
    """Return whether no node ran the command: silence, a lost connection, a node that is down or loading its data.

    Another node may run it, or this one later. Any other refusal is the node's own answer.
    """
    if not isinstance(reply, Exception):
        return False
    cause = cause_of(reply)
    # No cause means that the breaker is open, or no node is known.
    return isinstance(cause, ClusterDownError) or not isinstance(cause, ResponseError)
