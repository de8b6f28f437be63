"""Routing in a cluster (slots, MOVED, ASK), without I/O: the owner of each slot, its health and its clock.

Each node stamps its entries with its own clock. One clock is the reader's (`Cluster.clock`). The times in an entry of
another node are shifted by the difference of the two clocks, so that no other module has to know about nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from redis.crc import key_slot
from redis.exceptions import AskError, MovedError, RedisError, TryAgainError

from api_client.config.redis_url import Address, RedisUrl
from api_client.errors import CacheUnavailable
from api_client.protocol.clock import RedisClock, monotonic_seconds
from api_client.protocol.entry import with_times_shifted
from api_client.protocol.keys import CacheKey
from api_client.threads import Mutex
from api_client.transport.health import NodeHealth, cause_of, is_outage
from api_client.transport.routing import FindSlots, Pause, Plan, Routes, Send, SyncClock, about_query
from api_client.transport.sentinel import MasterAddress
from api_client.transport.wire import Command

SLOTS: Final = 16_384
MAX_ROUNDS: Final = 5
TRY_AGAIN_SECONDS: Final = 0.02
REFRESH_SECONDS: Final = 1.0
MIN_SHIFT_US: Final = 10_000  # the difference of clocks synced to one source, plus half a round trip

SLOTS_REQUEST: Final = ("CLUSTER", "SLOTS")
ASKING: Final = ("ASKING",)


class Cluster(Routes):
    """Slots and nodes of a cluster.

    A node that is down makes only its own keys unavailable, and at once while its breaker is open. Slots are refreshed
    when a node does not answer (at most once a second), and together with the clocks. A node that has lost a slot
    redirects.

    Args:
        url: the URL of some of the cluster's nodes.
        timeout_seconds: the timeout of a query for the slots.
        breaks: as for `NodeHealth`.
    """

    is_single = False

    def __init__(self, url: RedisUrl, timeout_seconds: float, *, breaks: bool = True) -> None:
        self.clock: RedisClock = RedisClock()
        self.master: MasterAddress = MasterAddress()
        self._read_url, self._seeds, self._breaks = url, list(url.members), breaks
        self._timeout_seconds = timeout_seconds
        self._without_owner = NodeHealth(breaks=False)
        self._owners: list[Address | None] = [None] * SLOTS
        self._healths: dict[Address, NodeHealth] = {}
        self._on_nodes_changed: list[Callable[[Collection[Address]], object]] = []
        self._lock = Mutex()
        self._refresh_at = 0.0
        self.is_known: bool = False

    def url_of(self, node: Address) -> str:
        """Return the URL of a node."""
        return self._read_url.url_of(node)

    def urls(self) -> list[str]:
        """Return the URLs of the masters."""
        return [self.url_of(node) for node in self.masters()]

    def on_nodes_changed(self, keep_only: Callable[[Collection[Address]], object]) -> None:
        """Register ``keep_only``, called with the nodes in use on whatever thread updates the slots."""
        self._on_nodes_changed.append(keep_only)

    def owner(self, key: str) -> Address | None:
        """Return the node that owns a key's slot, or None if that is unknown."""
        return self._owners[key_slot(key.encode())]

    def ready_owner(self, key: str) -> Address | None:
        """Return `owner` if its clock and the reader's are known, otherwise None."""
        owner = self.owner(key)
        if owner is None or not (self.clock.is_known and self.health_of(owner).clock.is_known):
            return None
        return owner

    def masters(self) -> list[Address]:
        """Return the nodes that have slots, always in the same order."""
        return sorted({owner for owner in self._owners if owner is not None})

    def slot_sources(self, besides: Collection[Address] = ()) -> list[Address]:
        """Return the nodes to query for the slots: masters, then the URL's nodes; the ones that failed last come last.

        A silent node takes up a whole search, so the next search begins with another one.
        """
        known = [address for address in dict.fromkeys([*self.masters(), *self._seeds]) if address not in besides]
        return sorted(known, key=lambda address: self.health_of(address).breaker.failed_at)

    def health_of(self, address: Address) -> NodeHealth:
        """Return the breaker and the clock of one node."""
        found = self._healths.get(address)
        if found is None:
            with self._lock:
                found = self._healths.setdefault(address, NodeHealth(breaks=self._breaks))
        return found

    def health_of_owner(self, key: str) -> NodeHealth:
        """Return the health of the node that owns a key's slot."""
        owner = self.owner(key)
        return self._without_owner if owner is None else self.health_of(owner)

    def is_due_once(self) -> bool:
        """Return whether the slots may be queried; if so, they may not be again for a second."""
        with self._lock:
            now = monotonic_seconds()
            if now < self._refresh_at:
                return False
            self._refresh_at = now + REFRESH_SECONDS
            return True

    def slots_refreshed(self, began: float) -> None:
        """Record that the search begun at ``began`` (monotonic seconds) has failed, which delays the next one."""
        now = monotonic_seconds()
        with self._lock:
            self._refresh_at = now + max(REFRESH_SECONDS, 2 * (now - began))

    def update_slots(self, reply: object, source: Address) -> bool:
        """Adopt the reply to CLUSTER SLOTS; return False if it is an error or names no slot."""
        if not isinstance(reply, list) or not reply:
            return False
        owners: list[Address | None] = [None] * SLOTS
        for first, last, master, *_ in reply:
            owners[first : last + 1] = [_address(master[0], master[1], source)] * (last + 1 - first)
        with self._lock:
            self._owners = owners
            self.is_known = True
            for gone in self._healths.keys() - set(owners) - set(self._seeds):
                del self._healths[gone]
        kept = {*self.masters(), *self._seeds}
        for keep_only in self._on_nodes_changed:
            keep_only(kept)
        return True

    def redirected(self, error: BaseException | None, source: Address) -> tuple[Address, bool] | None:
        """Return the node to which a reply redirects, and whether only once (after ASKING); record a moved slot."""
        if not isinstance(error, AskError):  # MovedError is a subclass
            return None
        address = _address(error.host, error.port, source)
        if not isinstance(error, MovedError):
            return address, True  # it already has this key, but not yet the slot
        with self._lock:
            self._owners[error.slot_id] = address
        return address, False

    def to_reader_clock(self, raw: bytes | None, address: Address) -> bytes | None:
        """Return a node's entry with its times by the reader's clock."""
        clock = self.health_of(address).clock
        if not raw or not clock.is_known or not self.clock.is_known:
            return raw
        by_us = self.clock.at_us(0.0) - clock.at_us(0.0)
        return raw if abs(by_us) < MIN_SHIFT_US else with_times_shifted(raw, by_us)

    def sync_from(self, address: Address) -> None:
        """Make a node's clock the reader's."""
        self.clock.sync(self.health_of(address).clock.now_us(), asked_at=monotonic_seconds())

    def no_owner(self) -> CacheUnavailable:
        """Return the error for a key whose slot has no known owner."""
        return CacheUnavailable("the cache's cluster can't be used: no node is known to have this key")

    def replies(self, commands: Sequence[Command], query: str | None = None) -> Plan[list[Any]]:
        """Run commands, as `Routes.replies` does. A command without a key goes with the one before it."""
        requests = yield from _routed(self, commands)
        return about_query([reply for request in requests for reply in request.replies], query)

    def entries(self, keys: Sequence[CacheKey]) -> Plan[Sequence[bytes | CacheUnavailable | None]]:
        """Read entries, as `Routes.entries` does; a failure takes the place of its entry."""
        found: list[bytes | CacheUnavailable | None] = []
        requests = yield from _routed(self, [("GET", key.entry) for key in keys])
        for key, request in zip(keys, requests, strict=True):
            try:
                found.append((yield from self._entry(key, request)))
            except CacheUnavailable as error:
                found.append(error)
        return found

    def read_again(self, key: CacheKey, node: Address, failed: CacheUnavailable) -> Plan[bytes | None]:
        """Read an entry from another node, if there is one, after a read at a node has failed.

        Raises:
            CacheUnavailable: there is no other node to read from.
        """
        request = Request(key.entry, [("GET", key.entry)], node, replies=[failed])
        yield from _exchange(self, (yield from _misdirected(self, [request])))
        return (yield from self._entry(key, request))

    def find_slots(self, besides: Collection[Address] = ()) -> FindSlots:
        """Return the step that finds the slots, without querying the nodes of ``besides``."""
        was_known = self.is_known  # without slots, all callers wait for the one that searches
        return FindSlots(lambda: self._search(besides, was_known=was_known), waits=not was_known)

    def _search(self, besides: Collection[Address], *, was_known: bool) -> Plan[CacheUnavailable | None]:
        """Query one node after another for the slots, until one answers or the timeout has passed.

        Returns the last error if none has answered.
        """
        if self.is_known and not was_known:  # another caller has found them in the meantime
            return None
        failed: CacheUnavailable | None = None
        began = monotonic_seconds()
        for address in self.slot_sources(besides):
            (reply,) = (yield Send({address: [SLOTS_REQUEST]}))[address]
            if self.update_slots(reply, address):
                return None
            failed = self.health_of(address).failure(reply, None) if isinstance(reply, RedisError) else reply
            if monotonic_seconds() - began >= self._timeout_seconds:
                break
        self.slots_refreshed(began)
        return failed if isinstance(failed, CacheUnavailable) else None

    def sync_clocks(self, *, every: bool) -> Plan[None]:
        """Refresh the slots, and sync the nodes' clocks as `Routes.sync_clocks` does.

        Unless ``every``, all but one node are synced at their first reads.
        """
        failed = (yield self.find_slots()) if every or not self.is_known else None
        learnt: list[Address] = []
        for address in self.masters():
            error = yield SyncClock(address)
            if error is None:
                learnt.append(address)
                if not every:
                    break
            failed = error or failed
        if not learnt:
            raise failed or self.no_owner()
        self.sync_from(learnt[0])

    def _entry(self, key: CacheKey, request: Request) -> Plan[bytes | None]:
        (reply,) = request.replies
        if isinstance(reply, CacheUnavailable):
            raise reply.about(key.query)
        health = self.health_of(request.node)
        raw = health.entry_of(reply, key.query)
        if not health.clock.is_known and (failed := (yield SyncClock(request.node))) is not None:
            raise failed.about(key.query)
        if not self.clock.is_known:
            self.sync_from(request.node)
        return self.to_reader_clock(raw, request.node)


@dataclass(slots=True)
class Request:
    """Commands that go to one node together, routed by the first one's key, and their replies."""

    key: str
    commands: list[Command]
    node: Address = ("", 0)
    is_ask: bool = False
    replies: list[Any] = field(default_factory=list)


def _routed(cluster: Cluster, commands: Sequence[Command]) -> Plan[list[Request]]:
    """Run commands on the nodes that own their keys' slots, following redirections; return them with replies.

    Requests that were sent to a wrong node are sent again, since every command may be repeated.
    """
    requests = _requests(commands)
    due: list[Request] = []
    failed: CacheUnavailable | None = None
    for request in requests:
        owner = cluster.owner(request.key)
        if owner is None and failed is None and (not cluster.is_known or cluster.is_due_once()):
            failed = yield cluster.find_slots()
            owner = cluster.owner(request.key)
        if owner is None:
            request.replies = [failed or cluster.no_owner()] * len(request.commands)
        else:
            request.node = owner
            due.append(request)
    yield from _exchange(cluster, due)
    return requests


def _requests(commands: Sequence[Command]) -> list[Request]:
    requests: list[Request] = []
    for command in commands:
        if command[0] in {"WAIT", "TIME"}:
            requests[-1].commands.append(command)
        else:
            requests.append(Request(str(command[3 if command[0] in {"EVALSHA", "EVAL"} else 1]), [command]))
    return requests


def _exchange(cluster: Cluster, due: Sequence[Request]) -> Plan[None]:
    """Send requests until each has its replies, or has been sent to five nodes."""
    for left in reversed(range(MAX_ROUNDS)):
        if due:
            yield from _send(due)
            due = (yield from _misdirected(cluster, due)) if left else []


def _send(due: Sequence[Request]) -> Plan[None]:
    by_node: dict[Address, list[Command]] = {}
    for request in due:
        if request.is_ask:
            by_node.setdefault(request.node, []).append(ASKING)
        by_node.setdefault(request.node, []).extend(request.commands)
    replies = yield Send(by_node)
    received: dict[Address, Iterator[Any]] = {node: iter(replies[node]) for node in by_node}
    for request in due:
        if request.is_ask:
            next(received[request.node])
        request.replies = list(islice(received[request.node], len(request.commands)))


def _misdirected(cluster: Cluster, sent: Sequence[Request]) -> Plan[list[Request]]:
    """Return the requests to send again: to another node, or to one that has replied TRYAGAIN."""
    again: list[Request] = []
    pauses = False
    for request in sent:
        error = request.replies[0]
        if not isinstance(error, Exception):
            continue
        cause = cause_of(error)
        if (redirection := cluster.redirected(cause, request.node)) is not None:
            request.node, request.is_ask = redirection
        elif isinstance(cause, TryAgainError):  # a slot is being migrated, and only one of two keys has arrived
            pauses = True
        elif is_outage(error) and (other := (yield from _other_owner(cluster, request))) is not None:
            request.node, request.is_ask = other, False
        else:
            continue
        again.append(request)
    if pauses:
        yield Pause(TRY_AGAIN_SECONDS)
    return again


def _other_owner(cluster: Cluster, request: Request) -> Plan[Address | None]:
    """Return the new owner of the slot after its node has failed, or None if the owner is the same."""
    if cluster.is_due_once():
        yield cluster.find_slots(besides=(request.node,))
    other = cluster.owner(request.key)
    return None if other == request.node else other


def _address(host: Any, port: Any, source: Address) -> Address:
    name = host.decode() if isinstance(host, bytes) else str(host or "")
    # A node that does not know its own address reports none, and is reachable where it was queried.
    return (name if name not in {"", "?"} else source[0]), int(port)
