"""Private parts of the reader, for tests: no other file of the tests uses a private attribute of it.

ruff's SLF001 enforces that. Tests of a race, which have to change something, get the object itself.
"""

from __future__ import annotations

from collections import deque
from threading import Lock, Thread
from typing import Any

import pytest

from api_client import CacheClient, default
from api_client.client_base import ClientBase
from api_client.local.decoded import DecodedEntryCache
from api_client.local.tier import LocalTier
from api_client.local.tracking import TrackingLink
from api_client.protocol import keys
from api_client.protocol.clock import RedisClock, monotonic_seconds
from api_client.protocol.lease import ClaimReply
from api_client.read.coalescing import AsyncSingleFlight, SingleFlight
from api_client.read.core import ReadCore
from api_client.read.wait import _WaitState
from api_client.transport.multiplexed import AsyncConnections, Multiplexed
from api_client.transport.pool import Connection, Connections
from api_client.transport.pubsub import Notifications
from api_client.transport.sentinel import SentinelResolver
from api_client.trigger.claim_and_publish import BatchPublisher
from api_client.trigger.publisher import Publisher
from api_client.trigger.suppression import TriggerSuppressor


def link_of(client: ClientBase) -> Any:
    """Return the link to Redis that a client of either kind uses for all but reads."""
    return client._link


def reading_link_of(client: ClientBase) -> Any:
    """Return the link that a client reads by: an async one has its own."""
    return getattr(client, "_aio", client._link)


def connections_of(link: Any) -> AsyncConnections:
    """Return the connections of an async link to one server."""
    return link.only_node._connections


def publisher_of(client: ClientBase) -> Publisher:
    return client._publisher


def publication_of(publisher: Publisher) -> BatchPublisher:
    """Return the part of a publisher that processes its batches of triggers."""
    return publisher._publication


def record_claims(monkeypatch: pytest.MonkeyPatch) -> set[Any]:
    """Return a set that each wait joins when its claim has been answered."""
    claimed, on_claim_reply = set[Any](), _WaitState.on_claim_reply

    def recorded(wait: Any, reply: ClaimReply) -> None:
        on_claim_reply(wait, reply)
        claimed.add(wait)

    monkeypatch.setattr(_WaitState, "on_claim_reply", recorded)
    return claimed


def notifications_of(client: ClientBase) -> Notifications:
    return client._notifications


def tier_of(client: ClientBase) -> LocalTier | None:
    return client._tier


def tracking_of(client: ClientBase) -> Any:
    return client._tracking


def single_flight_of(client: Any) -> SingleFlight | AsyncSingleFlight:
    return client._reads._flights


def flights_of(shared: SingleFlight | AsyncSingleFlight) -> list[Any]:
    """Return the waits in progress; ``waiting`` of each has its followers."""
    if isinstance(shared, AsyncSingleFlight):
        return [flight for flights in shared._flights.values() for flight in flights.values()]
    return list(shared._flights.values())


def default_lock() -> Any:
    """Return the lock under which the default clients are made."""
    return default._lock


def default_clients() -> tuple[CacheClient | None, Any]:
    """Return the default clients, sync and async, if they were made."""
    return default._client, default._async_client


def new_key(*args: Any) -> keys.CacheKey:
    """Return what `make_key` returns, without the keys that it remembers."""
    return keys._new_key(*args)


def remembered_keys() -> Any:
    """Return the `functools.lru_cache` of keys."""
    return keys._remembered_key


def never_resync(clock: RedisClock) -> None:
    """Keep a clock from syncing again on its own."""
    clock._resync_at = float("inf")


def idle_in(pool: Connections) -> deque[Connection]:
    return pool._idle


def opened_in(pool: Connections) -> set[Any]:
    return pool._open


def waiting_in(pool: Connections) -> deque[Any]:
    """Return what wakes the threads that wait for a connection."""
    return pool._waiting


def set_timeout(pool: Connections, seconds: float) -> None:
    """Change the timeout of a pool, for waits and connections from now on."""
    pool._timeout_seconds = seconds


def end_as_stalled(connection: Connection) -> None:
    """End a wait for a reply as the watchdog does, as if it had begun long ago."""
    connection._waits_since = float("-inf")
    connection.close_if_stalled()


def socket_of(connection: Any) -> Any:
    return connection._socket


def by_loop(connections: AsyncConnections) -> dict[Any, Any]:
    """Return the connection of each event loop."""
    return connections._by_loop


def due_on(connection: Multiplexed) -> int:
    """Return how many replies are due."""
    return len(connection._due)


def timer_of(connection: Multiplexed) -> object:
    """Return the timer of the next check of its timeout."""
    return connection._timer


def unsent_on(connection: Multiplexed) -> int:
    return len(connection._unsent)


def listened_to(notifications: Notifications) -> tuple[int, int]:
    """Return how many channels a process is subscribed to, and how many waits it has."""
    return len(notifications._channels), len(notifications._waiting)


def thread_of(owner: Publisher | TrackingLink) -> Thread:
    """Return the thread that was started last for a publisher or a tier's link."""
    thread = owner._thread._thread
    assert thread is not None
    return thread


def is_running(publisher: Publisher) -> bool:
    """Return whether the publisher's thread runs."""
    return publisher._thread.is_running


def pause_seconds(link: TrackingLink) -> float:
    """Return how long the link would wait before its next attempt; the attempt after that waits for longer."""
    return link._pause_seconds()


def failures_of(link: TrackingLink) -> int:
    return link._failures


def set_refused(link: TrackingLink) -> None:
    """Make the link assume that Redis has refused it."""
    link._reported = "refused"


def lock_of(suppressor: TriggerSuppressor) -> Lock:
    return suppressor._lock


def is_filling(tier: LocalTier) -> bool:
    """Return whether a read that may fill the tier is in progress."""
    return bool(tier._fills)


def age(tier: LocalTier, seconds: float) -> None:
    """Let the tier's clock be ahead from now on."""
    tier._monotonic = lambda: monotonic_seconds() + seconds


def decoded_of(core: ReadCore) -> DecodedEntryCache:
    return core._decoded


def sentinels_of(resolver: SentinelResolver) -> Any:
    """Return redis-py's Sentinel client of a resolver."""
    return resolver._sentinel


def wakes_at(renewals: Any) -> float:
    """Return when the thread of a worker's renewals wakes by itself."""
    return renewals._wakes_at


def wake_up_of(renewals: Any) -> Any:
    """Return the condition that wakes the thread of a worker's renewals earlier."""
    return renewals._changed
