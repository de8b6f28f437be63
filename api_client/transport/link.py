"""The sync reader's link to Redis: bounded in time, behind a breaker, with Redis' clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from redis.exceptions import RedisError

from api_client.errors import CacheUnavailable
from api_client.protocol.clock import monotonic_seconds
from api_client.protocol.keys import CacheKey
from api_client.protocol.lease import Call
from api_client.transport.error_replies import is_wrong_node
from api_client.transport.health import TIME_REQUEST, Health
from api_client.transport.pool import Connections
from api_client.transport.redis_py import connection_maker
from api_client.transport.scripts import LeaseStore, PooledExecutor, Steps
from api_client.transport.wire import Command, pack_all, pack_get

T = TypeVar("T")


class CacheLink:
    """Reads entries and runs lease steps; every failure is a CacheUnavailable, at once while the breaker is open.

    All goes over connections of its own, which cost half of what redis-py's do.
    """

    def __init__(self, url: str, timeout_seconds: float, reply_seconds: float, health: Health | None = None) -> None:
        self.health: Health = health or Health()
        self._make = connection_maker(url, timeout_seconds=timeout_seconds, known=self.health.master)
        self._connections = Connections(self._make, timeout_seconds=timeout_seconds, reply_seconds=reply_seconds)
        self.health.master.on_change(self._connections.leave)
        self._own_store = LeaseStore(PooledExecutor(self._make, self._connections), on_read_only=self._leave_node)

    @property
    def store(self) -> Steps:
        """What runs steps for the publisher; its errors are redis-py's."""
        return self._own_store

    def read(self, key: CacheKey) -> bytes | None:
        """Return the entry's bytes (``b""`` where the key is no string), or None where there is none."""
        if self.health.breaker.is_open:
            self.health.check(key.query)
        try:
            reply = self._connections.ask(pack_get(key.entry))
        except (RedisError, OSError) as error:
            raise self.health.failure(error, key.query) from error
        return self._entry_of(reply, key.query)

    def read_all(self, keys: Sequence[CacheKey]) -> Sequence[bytes | CacheUnavailable | None]:
        """Return the bytes of several entries, in one round trip."""
        replies = self.ask_all([("GET", key.entry) for key in keys], keys[0].query)
        return [self._entry_of(reply, key.query) for key, reply in zip(keys, replies, strict=True)]

    def begin_all(self, commands: Sequence[Command], query: str | None) -> Callable[[], list[object]]:
        """Send commands now, and return what waits for their replies, which are those of `ask_all`; call it once."""
        self.health.check(query)
        try:
            finish = self._connections.begin(pack_all(commands), len(commands))
        except (RedisError, OSError) as error:
            raise self.health.failure(error, query) from error

        def replies() -> list[object]:
            try:
                received: list[object] = finish()
            except (RedisError, OSError) as error:
                raise self.health.failure(error, query) from error
            self.health.breaker.succeeded()
            return received

        return replies

    def ask_all(self, commands: Sequence[Command], query: str | None) -> list[object]:
        """Send commands in one round trip and return their replies; an error reply is returned as an exception."""
        return self.begin_all(commands, query)()

    def run(self, call: Call[T], query: str | None) -> T:
        """Run one step of the lease record."""
        return self._guarded(lambda: self._own_store.run(call), query)

    def run_each(self, calls: Sequence[Call[T]], query: str | None) -> list[T | CacheUnavailable]:
        """Run steps in one round trip (two when Redis has forgotten a script); one that it refuses ends alone."""
        replies = self._guarded(lambda: self._own_store.replies(calls), query)
        return [
            self.health.failure(reply, query) if isinstance(reply, RedisError) else call.parse(reply)
            for call, reply in zip(calls, replies, strict=True)
        ]

    def run_and_wait(self, call: Call[T], query: str, *, replicas: int, timeout_seconds: float) -> tuple[T, int]:
        """Run one step and wait for replicas: its reply, and how many have it."""
        return self._guarded(
            lambda: self._own_store.run_and_wait(call, replicas=replicas, timeout_seconds=timeout_seconds), query
        )

    def now_us(self) -> int:
        """Return Redis' time; asks Redis only when it never has been asked."""
        if not self.health.clock.is_known:
            self.learn_clock()
        return self.health.clock.now_us()

    def learn_clock(self) -> None:
        """Ask Redis for its time; behind Sentinels ask them, too, whether this still is the master."""
        self.health.check(None)
        self._make.look()
        asked_at = monotonic_seconds()
        try:
            reply = self._connections.ask(TIME_REQUEST)
        except (RedisError, OSError) as error:
            raise self.health.failure(error, None) from error
        self.health.learn_time(reply, asked_at=asked_at)

    def close(self) -> None:
        """Close the connections; one that is in use when it is given back."""
        self._connections.leave()
        self._make.close()

    def _guarded(self, step: Callable[[], T], query: str | None) -> T:
        self.health.check(query)
        try:
            result = step()
        except (RedisError, OSError) as error:
            raise self.health.failure(error, query) from error
        self.health.breaker.succeeded()
        return result

    def _entry_of(self, reply: object, query: str) -> bytes | None:
        if reply.__class__ is not bytes and is_wrong_node(reply):
            self._leave_node()
        return self.health.entry_of(reply, query)

    def _leave_node(self) -> None:
        # A demoted master: connections to it are of no use, the next ones find the new one.
        self._connections.leave()
