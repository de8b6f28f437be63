"""Sentinel: the master's address, for connections of redis-py to it.

redis-py's own `SentinelConnectionPool` does not bound the search, and loses a Sentinel if two threads find another one
at the same time. So its connections get a resolver in place of their pool.

In a manual failover, or one that a partition causes, the old master goes on as master for some seconds, and writes to
it are lost. Its connections show nothing of that, so links that write poll the Sentinels once a second.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, RedisError, ResponseError, TimeoutError
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, Sentinel

from api_client.config.redis_url import Address
from api_client.errors import twin
from api_client.protocol.clock import monotonic_seconds
from api_client.threads import start_thread
from api_client.transport.sockets import keepalive_options
from api_client.transport.wire import pack_bytes_only

T = TypeVar("T")

POLL_SECONDS: Final = 1.0
POLL_UNANSWERED_SECONDS: Final = 5.0


class MasterAddress:
    """The master's address as last found; notifies owners of connections when it changes. Thread-safe.

    Attributes:
        resolver: the resolver of all connections that share this address; None until it is needed.
    """

    def __init__(self) -> None:
        self.address: Address | None = None
        self.resolver: SentinelResolver | None = None
        self._on_change: list[Callable[[], object]] = []

    def on_change(self, leave: Callable[[], object]) -> None:
        """Register ``leave``, called on the thread that finds a new master."""
        self._on_change.append(leave)

    def update(self, address: Address) -> None:
        """Record the master's address."""
        before, self.address = self.address, address
        if before not in (None, address):
            for leave in self._on_change:
                leave()


class SentinelResolver:
    """Finds the master for each new connection. Thread-safe: concurrent callers share an answer.

    Args:
        known: updated with each answer.
        master_name: the Sentinels' name of the master.
        members: the Sentinels; the last one that answered is asked first.
        options: redis-py's options of the connections to them.
        timeout_seconds: the approximate time to ask all of them; each has its share.
    """

    # Read by redis-py's connections.
    is_master = True
    check_connection = False

    def __init__(
        self,
        known: MasterAddress,
        master_name: str,
        members: Sequence[Address],
        options: dict[str, Any],
        *,
        timeout_seconds: float,
    ) -> None:
        self._known, self._master_name, self._timeout_seconds = known, master_name, timeout_seconds
        share_seconds = timeout_seconds / len(members)
        self._sentinel: Any = Sentinel(  # type: ignore[no-untyped-call]
            members,
            sentinel_kwargs={
                **options,
                "socket_connect_timeout": share_seconds,
                "socket_timeout": share_seconds,
                "socket_keepalive": True,
                "socket_keepalive_options": keepalive_options(),
                "protocol": 2,
                # A Sentinel that has closed an idle connection is tried again, a silent one is not.
                "retry": Retry(NoBackoff(), 1, supported_errors=(ConnectionError,)),
            },
        )
        for sentinel in self._sentinel.sentinels:
            pack_bytes_only(sentinel.connection_pool)
        self._asking = threading.RLock()
        self._found: Address | None = None
        self._failure: RedisError | None = None
        self._found_at = -1.0
        self._poll_at = 0.0

    def get_master_address(self) -> Address:
        """Return the master's address, or the last known one if no Sentinel knows: its refusals tell what it is now.

        Raises:
            redis.exceptions.ConnectionError: no Sentinel has ever known the master.
            redis.exceptions.ResponseError: likewise, and one has refused to tell.
            redis.exceptions.TimeoutError: other callers have used up the time.
        """
        address = self._ask() or self._known.address
        failure = self._failure
        if address is not None:
            return address
        if isinstance(failure, ResponseError):
            raise twin(failure)
        # redis-py's own message is long, and names connections.
        why = f"; no answer: {failure}" if failure else ""
        raise MasterNotFoundError(f"no Sentinel that answers knows a master {self._master_name!r} that is up{why}")

    def has_moved_from(self, address: Address) -> bool:
        """Return whether the master is known, and not at ``address``."""
        return self._known.address not in (None, address)

    @property
    def is_due(self) -> bool:
        """True if `poll` would ask."""
        return monotonic_seconds() >= self._poll_at

    def poll(self) -> None:
        """Ask again if due: once a second, or less often while no Sentinel answers."""
        if self.is_due:
            self._poll_at = monotonic_seconds() + POLL_SECONDS
            try:
                found = self._ask()
            except RedisError:
                found = None
            if found is None:
                self._poll_at = monotonic_seconds() + POLL_UNANSWERED_SECONDS

    def close(self) -> None:
        """Close the connections to the Sentinels."""
        self._sentinel.close()

    def _ask(self) -> Address | None:
        """Ask, or share another thread's newer answer; None if no Sentinel knows."""
        came_at = monotonic_seconds()
        try:  # within the try, since a signal handler may raise as soon as the lock is held
            if not self._asking.acquire(timeout=2 * self._timeout_seconds):
                raise TimeoutError("the Sentinels did not answer in time")
            if self._found_at >= came_at:
                return self._found
            asked_at = monotonic_seconds()
            self._found = self._ask_each()
            self._found_at = asked_at
            found = self._found
        finally:
            try:  # noqa: SIM105 - one call more could be interrupted
                self._asking.release()
            except RuntimeError:  # another thread holds it
                pass
        if found is not None:
            self._known.update(found)
        return found

    def _ask_each(self) -> Address | None:
        """Ask one Sentinel after another, like redis-py's `discover_master`, but without ending at a refusal."""
        self._failure, sentinels = None, self._sentinel.sentinels
        for place, sentinel in enumerate(sentinels):
            try:
                master = sentinel.sentinel_masters().get(self._master_name)
            except RedisError as error:
                if not isinstance(self._failure, ResponseError):
                    self._failure = error
                continue
            if master and self._sentinel.check_master_state(master, self._master_name):
                sentinels[0], sentinels[place] = sentinel, sentinels[0]
                return str(master["ip"]), int(master["port"])
        return None


class AsyncSentinelResolver:
    """Finds the master for each new connection on any event loop, through the sync link's resolver."""

    # Read by redis-py's connections.
    is_master = True
    check_connection = False

    def __init__(self, resolver: SentinelResolver) -> None:
        self._resolver = resolver

    async def get_master_address(self) -> Address:
        """Return the master's address, as `SentinelResolver.get_master_address` does."""
        return await _run_in_thread(self._resolver.get_master_address)

    async def poll(self) -> None:
        """Ask if due, as `SentinelResolver.poll` does; on return, connections to another node have been left."""
        if self._resolver.is_due:
            with suppress(ConnectionError):
                await _run_in_thread(self._resolver.poll)


async def _run_in_thread(call: Callable[[], T]) -> T:
    """Run a call on a thread of its own, since the loop's executor may be busy with the application's calls.

    Raises:
        redis.exceptions.ConnectionError: the system has no thread left.
    """
    # Imported here, so that an application that never awaits does not load asyncio.
    import asyncio
    from concurrent.futures import Future

    outcome: Future[T] = Future()

    def run() -> None:
        if outcome.set_running_or_notify_cancel():
            try:
                outcome.set_result(call())
            except Exception as error:  # noqa: BLE001 - it is the caller's
                outcome.set_exception(error)

    try:
        start_thread(run, "cache-sentinels")
    except RuntimeError as error:
        raise ConnectionError(str(error)) from error
    return await asyncio.wrap_future(outcome)


class RoundRobin:
    """A resolver without Sentinels, which leads each connection to the next of some nodes."""

    is_master = True
    check_connection = False

    def __init__(self, members: Sequence[Address]) -> None:
        self._members = itertools.cycle(members)

    def get_master_address(self) -> Address:
        """Return the next node's address."""
        return next(self._members)
