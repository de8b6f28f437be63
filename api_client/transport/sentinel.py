"""Asks Sentinels where the master is, for connections of redis-py that go there.

redis-py's own `SentinelConnectionPool` does not bound how long that takes, and loses a Sentinel when two threads find
another one at once; so its connections get a finder in the place of their pool.

In a failover that was ordered, or that a partition has caused, the old master goes on as one for some seconds: what is
written to it then is lost. Nothing on its connections tells, so who writes asks the Sentinels once a second.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, TimeoutError
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, Sentinel

from api_client.config.redis_url import Address
from api_client.protocol.clock import monotonic_seconds
from api_client.transport.pool import keepalive_options
from api_client.transport.wire import pack_bytes_only

IS_MASTER: Final = True
LOOK_SECONDS: Final = 1.0
LOOK_UNANSWERED_SECONDS: Final = 5.0


class MasterAddress:
    """Where the master was when it was found last; tells those who have connections to another one. Thread-safe."""

    def __init__(self) -> None:
        self.address: Address | None = None
        self._leave: list[Callable[[], object]] = []

    def on_change(self, leave: Callable[[], object]) -> None:
        """Have ``leave`` called, on whatever thread finds it out, when the master is another one than before."""
        self._leave.append(leave)

    def require(self, master_name: str) -> Address:
        """Return where it was last, while no Sentinel tells: if it is one no more, its refusals say so.

        Raises:
            redis.exceptions.ConnectionError: nobody has ever told.
        """
        if self.address is None:
            # redis-py's own words are long, and name connections.
            raise MasterNotFoundError(f"no Sentinel that answers knows a master {master_name!r} that is up")
        return self.address

    def found(self, address: Address) -> None:
        """Note where the master is."""
        before, self.address = self.address, address
        if before not in (None, address):
            for leave in self._leave:
                leave()


class RateLimiter:
    """When who has good connections asks the Sentinels again: once a second, later where none has answered."""

    def __init__(self) -> None:
        self._next_at = 0.0

    def is_due(self) -> bool:
        """Tell whether to ask now; then the next second is granted to whoever was told so."""
        now = monotonic_seconds()
        if now < self._next_at:
            return False
        self._next_at = now + LOOK_SECONDS
        return True

    def back_off(self) -> None:
        """Ask later: no Sentinel has answered."""
        self._next_at = monotonic_seconds() + LOOK_UNANSWERED_SECONDS


class SentinelResolver:
    """Finds the master at each connecting. Thread-safe: those who ask at one time share an answer.

    Args:
        known: is told of it.
        master_name: what the Sentinels call it.
        members: the Sentinels; the one that has answered last is asked first.
        options: of the connections to them (redis-py's words).
        timeout_seconds: to ask all of them, about; each has its share.
    """

    # What redis-py's connections look at, and call.
    is_master = IS_MASTER
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
        # One that has closed an idle connection is tried again; a silent one is not.
        retry = Retry(NoBackoff(), 1, supported_errors=(ConnectionError,))
        asked_with = sentinel_options(options, members, timeout_seconds, retry)
        self._sentinel: Any = Sentinel(members, sentinel_kwargs=asked_with)  # type: ignore[no-untyped-call]
        for sentinel in self._sentinel.sentinels:
            pack_bytes_only(sentinel.connection_pool)
        self._asking = threading.RLock()
        self._told: Address | None = None
        self._told_at = -1.0
        self._look_times = RateLimiter()

    def get_master_address(self) -> Address:
        """Return the master's address, the last known one where no Sentinel tells.

        Raises:
            redis.exceptions.ConnectionError: no Sentinel has ever told.
            redis.exceptions.TimeoutError: others who ask have taken all the time.
        """
        return self._asked() or self._known.require(self._master_name)

    def has_moved_from(self, address: Address) -> bool:
        """Tell whether the master is known, and not at ``address``."""
        return self._known.address not in (None, address)

    def look(self) -> None:
        """Ask again where that is due, as connections that are good do not."""
        if self._look_times.is_due():
            try:
                told = self._asked()
            except (ConnectionError, TimeoutError):
                told = None
            if told is None:
                self._look_times.back_off()

    def close(self) -> None:
        """Close the connections to the Sentinels."""
        self._sentinel.close()

    def _asked(self) -> Address | None:
        """Ask, or share what another thread has been told since; None where no Sentinel knows."""
        came_at = monotonic_seconds()
        try:  # in here, for a signal handler may raise as soon as it is held
            if not self._asking.acquire(timeout=2 * self._timeout_seconds):
                raise TimeoutError("the Sentinels did not answer in time")
            if self._told_at >= came_at:
                return self._told
            asked_at = monotonic_seconds()
            try:
                host, port = self._sentinel.discover_master(self._master_name)
                self._told = str(host), int(port)
            except MasterNotFoundError:
                self._told = None
            self._told_at = asked_at
            told = self._told
        finally:
            try:  # noqa: SIM105 - one call more could be interrupted
                self._asking.release()
            except RuntimeError:  # another thread has it
                pass
        if told is not None:
            self._known.found(told)
        return told


def sentinel_options(
    options: dict[str, Any], members: Sequence[Address], timeout_seconds: float, retry: Any
) -> dict[str, Any]:
    """Return the options of connections to the Sentinels: each of them gets a share of the time."""
    share_seconds = timeout_seconds / len(members)
    return {
        **options,
        "socket_connect_timeout": share_seconds,
        "socket_timeout": share_seconds,
        "socket_keepalive": True,
        "socket_keepalive_options": keepalive_options(),
        "protocol": 2,
        "retry": retry,
    }


class RoundRobin:
    """Leads each connection to the next one of some nodes; a finder without Sentinels."""

    is_master = IS_MASTER
    check_connection = False

    def __init__(self, members: Sequence[Address]) -> None:
        self._members = itertools.cycle(members)

    def get_master_address(self) -> Address:
        """Return the next one."""
        return next(self._members)
