"""Sentinel: where the master is, for connections of redis-py that go there.

redis-py's own `SentinelConnectionPool` does not bound how long that takes, and loses a Sentinel when two threads find
another one at once; so its connections get a resolver in the place of their pool.

In a failover that was ordered, or that a partition has caused, the old master goes on as one for some seconds: what is
written to it then is lost. Nothing on its connections shows that, so links that write poll the Sentinels once a second.
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
from api_client.transport.sockets import keepalive_options
from api_client.transport.wire import pack_bytes_only

POLL_SECONDS: Final = 1.0
POLL_UNANSWERED_SECONDS: Final = 5.0


class MasterAddress:
    """Where the master was when it was found last; notifies the owners of connections to another one. Thread-safe."""

    def __init__(self) -> None:
        self.address: Address | None = None
        self._on_change: list[Callable[[], object]] = []

    def on_change(self, invalidate_all: Callable[[], object]) -> None:
        """Have ``invalidate_all`` called, on the thread that finds out, when the master is another one than before."""
        self._on_change.append(invalidate_all)

    def update(self, address: Address) -> None:
        """Record where the master is."""
        before, self.address = self.address, address
        if before not in (None, address):
            for invalidate_all in self._on_change:
                invalidate_all()


class MasterSearch:
    """The state that the sync and the async resolver share: the known address, when to poll. No I/O.

    Args:
        known: is updated.
        master_name: its name at the Sentinels.
    """

    # Read by redis-py's connections.
    is_master = True
    check_connection = False

    def __init__(self, known: MasterAddress, master_name: str) -> None:
        self._known, self._master_name = known, master_name
        self._next_at = 0.0

    def _is_due_once(self) -> bool:
        """Tell whether to poll beside good connections; then the next second is granted to the caller."""
        now = monotonic_seconds()
        if now < self._next_at:
            return False
        self._next_at = now + POLL_SECONDS
        return True

    def _polled(self, address: Address | None) -> None:
        """Record what such a poll has found; where no Sentinel has answered the next one is later."""
        if address is None:
            self._next_at = monotonic_seconds() + POLL_UNANSWERED_SECONDS

    def _found_or_known(self, found: Address | None) -> Address:
        """Return the master's address, the last known one where no Sentinel knows: its refusals say what it is now.

        Raises:
            redis.exceptions.ConnectionError: it was never known.
        """
        address = found or self._known.address
        if address is None:
            # redis-py's own words are long, and name connections.
            raise MasterNotFoundError(f"no Sentinel that answers knows a master {self._master_name!r} that is up")
        return address


class SentinelResolver(MasterSearch):
    """Finds the master at each connecting. Thread-safe: callers that ask at one time share an answer.

    Args:
        known, master_name: as for `MasterSearch`.
        members: the Sentinels; the one that has answered last is asked first.
        options: of the connections to them (redis-py's words).
        timeout_seconds: to ask all of them, about; each has its share.
    """

    def __init__(
        self,
        known: MasterAddress,
        master_name: str,
        members: Sequence[Address],
        options: dict[str, Any],
        *,
        timeout_seconds: float,
    ) -> None:
        super().__init__(known, master_name)
        self._timeout_seconds = timeout_seconds
        # One that has closed an idle connection is tried again; a silent one is not.
        retry = Retry(NoBackoff(), 1, supported_errors=(ConnectionError,))
        asked_with = sentinel_options(options, members, timeout_seconds, retry)
        self._sentinel: Any = Sentinel(members, sentinel_kwargs=asked_with)  # type: ignore[no-untyped-call]
        for sentinel in self._sentinel.sentinels:
            pack_bytes_only(sentinel.connection_pool)
        self._asking = threading.RLock()
        self._found: Address | None = None
        self._found_at = -1.0

    def get_master_address(self) -> Address:
        """Return the master's address, the last known one where no Sentinel knows.

        Raises:
            redis.exceptions.ConnectionError: no Sentinel has ever known.
            redis.exceptions.TimeoutError: other callers have taken all the time.
        """
        return self._found_or_known(self._ask())

    def has_moved_from(self, address: Address) -> bool:
        """Tell whether the master is known, and not at ``address``."""
        return self._known.address not in (None, address)

    def poll(self) -> None:
        """Ask again where that is due, as connections that are good do not."""
        if self._is_due_once():
            try:
                found = self._ask()
            except (ConnectionError, TimeoutError):
                found = None
            self._polled(found)

    def close(self) -> None:
        """Close the connections to the Sentinels."""
        self._sentinel.close()

    def _ask(self) -> Address | None:
        """Ask, or share what another thread has found since; None where no Sentinel knows."""
        came_at = monotonic_seconds()
        try:  # in here, for a signal handler may raise as soon as it is held
            if not self._asking.acquire(timeout=2 * self._timeout_seconds):
                raise TimeoutError("the Sentinels did not answer in time")
            if self._found_at >= came_at:
                return self._found
            asked_at = monotonic_seconds()
            try:
                host, port = self._sentinel.discover_master(self._master_name)
                self._found = str(host), int(port)
            except MasterNotFoundError:
                self._found = None
            self._found_at = asked_at
            found = self._found
        finally:
            try:  # noqa: SIM105 - one call more could be interrupted
                self._asking.release()
            except RuntimeError:  # another thread has it
                pass
        if found is not None:
            self._known.update(found)
        return found


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
    """Leads each connection to the next one of some nodes; a resolver without Sentinels."""

    is_master = True
    check_connection = False

    def __init__(self, members: Sequence[Address]) -> None:
        self._members = itertools.cycle(members)

    def get_master_address(self) -> Address:
        """Return the next one."""
        return next(self._members)
