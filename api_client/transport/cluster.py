"""Routing in a cluster (slots, MOVED, ASK), without I/O: which node has a slot, how it is, and what its clock shows.

Plans (see `scripts`) yield the steps of an exchange with the nodes; the links carry them out, sync and async.

Each node has a clock of its own, and stamps its entries by it. One clock is the reader's (`Health.clock`); the times in
an entry of another node are shifted by the difference of the two, so that nothing else has to know of nodes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from redis.crc import key_slot
from redis.exceptions import AskError, MovedError, RedisError, TryAgainError

from api_client.config.redis_url import Address
from api_client.errors import CacheUnavailable
from api_client.protocol.clock import monotonic_seconds
from api_client.protocol.entry import moved
from api_client.protocol.keys import CacheKey
from api_client.transport.health import Health, is_outage
from api_client.transport.wire import Command

SLOTS: Final = 16_384
MAX_ROUNDS: Final = 5
TRY_AGAIN_SECONDS: Final = 0.02
REFRESH_SECONDS: Final = 1.0
MIN_SHIFT_US: Final = 10_000  # what clocks that are kept by one source differ by, and a round trip's half

SLOTS_REQUEST: Final = ("CLUSTER", "SLOTS")
ASKING: Final = ("ASKING",)

T = TypeVar("T")


class Send(NamedTuple):
    """Step: send commands, each node's in one round trip, all nodes at one time.

    Send back the replies by node; where one has failed, its CacheUnavailable in the place of each.
    """

    by_node: Mapping[Address, Sequence[Command]]


class Pause(NamedTuple):
    """Step: sleep."""

    duration_seconds: float


class FindSlots(NamedTuple):
    """Step: carry out `find_slots`, once for all callers at one time. Send back its result."""

    besides: Collection[Address] = ()


class LearnClock(NamedTuple):
    """Step: have a node's link learn the node's time. Send back its CacheUnavailable, or None."""

    address: Address


Step: TypeAlias = Send | Pause | FindSlots | LearnClock
Plan: TypeAlias = Generator[Step, Any, T]


class ClusterState(Health):
    """Slots and nodes, shared by the sync and the async link. Thread-safe; no I/O.

    ``clock`` is the reader's, ``breaker`` is not used: each node has one.

    Args:
        seeds: the nodes that the URL names.
        breaks: as for `Health`, of each node.
    """

    def __init__(self, seeds: Sequence[Address], *, breaks: bool = True) -> None:
        super().__init__()
        self._seeds, self._breaks = list(seeds), breaks
        self._owners: list[Address | None] = [None] * SLOTS
        self._healths: dict[Address, Health] = {}
        self._on_slots_changed: list[Callable[[Collection[Address]], object]] = []
        self._lock = threading.RLock()
        self._refresh_at = 0.0
        self.is_known: bool = False

    def on_slots_changed(self, keep_only: Callable[[Collection[Address]], object]) -> None:
        """Have ``keep_only`` called with the nodes that are in use, on whatever thread updates the slots."""
        self._on_slots_changed.append(keep_only)

    def owner(self, key: str) -> Address | None:
        """Return the node that has a key's slot; None where none is known to."""
        return self._owners[key_slot(key.encode())]

    def ready_owner(self, key: str) -> Address | None:
        """Return `owner` where its clock and the reader's are known."""
        owner = self.owner(key)
        if owner is None or not (self.clock.is_known and self.health_of(owner).clock.is_known):
            return None
        return owner

    def masters(self) -> list[Address]:
        """Return the nodes that have slots, always in the same order."""
        return sorted({owner for owner in self._owners if owner is not None})

    def slot_sources(self, besides: Collection[Address] = ()) -> list[Address]:
        """Return the nodes to ask about the slots: the masters that answer, those that do not, the URL's nodes."""
        known = [address for address in self.masters() if address not in besides]
        known.sort(key=lambda address: self.health_of(address).breaker.is_open)
        return known + [seed for seed in self._seeds if seed not in known and seed not in besides]

    def health_of(self, address: Address) -> Health:
        """Return the breaker and the clock of one node."""
        found = self._healths.get(address)
        if found is None:
            with self._lock:
                found = self._healths.setdefault(address, Health(breaks=self._breaks))
        return found

    def health_of_owner(self, key: str) -> Health:
        """Return the health of the node that has a key's slot."""
        owner = self.owner(key)
        return self if owner is None else self.health_of(owner)

    def is_due_once(self) -> bool:
        """Tell whether the slots may be asked for; then not again for a second."""
        with self._lock:
            now = monotonic_seconds()
            if now < self._refresh_at:
                return False
            self._refresh_at = now + REFRESH_SECONDS
            return True

    def slots_refreshed(self, began: float) -> None:
        """Record that a search begun then (monotonic seconds) has failed; the next one is later."""
        now = monotonic_seconds()
        with self._lock:
            self._refresh_at = now + max(REFRESH_SECONDS, 2 * (now - began))

    def update_slots(self, reply: object, source: Address) -> bool:
        """Take over the reply to CLUSTER SLOTS; False where it is an error, or names no slot."""
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
        for keep_only in self._on_slots_changed:
            keep_only(kept)
        return True

    def redirected(self, error: BaseException | None, source: Address) -> tuple[Address, bool] | None:
        """Return the node to which a reply leads, and whether for once (after ASKING); a moved slot is recorded."""
        if not isinstance(error, AskError):  # a MovedError is one
            return None
        address = _address(error.host, error.port, source)
        if not isinstance(error, MovedError):
            return address, True  # it has this key already, and not yet its slot
        with self._lock:
            self._owners[error.slot_id] = address
        return address, False

    def to_reader_clock(self, raw: bytes | None, address: Address) -> bytes | None:
        """Return an entry of a node with its times by the reader's clock."""
        clock = self.health_of(address).clock
        if not raw or not clock.is_known or not self.clock.is_known:
            return raw
        by_us = self.clock.at_us(0.0) - clock.at_us(0.0)
        return raw if abs(by_us) < MIN_SHIFT_US else moved(raw, by_us)

    def learn_from(self, address: Address) -> None:
        """Make a node's clock the reader's."""
        self.clock.sync(self.health_of(address).clock.now_us(), asked_at=monotonic_seconds())

    def no_owner(self) -> CacheUnavailable:
        """Return the error for a key whose slot no node is known to have."""
        return CacheUnavailable("the cache's cluster can't be used: no node is known to have this key")


@dataclass(slots=True)
class Request:
    """Commands that go to one node together, by the key of the first; with their replies."""

    key: str
    commands: list[Command]
    node: Address = ("", 0)
    is_ask: bool = False
    replies: list[Any] = field(default_factory=list)


def route(state: ClusterState, commands: Sequence[Command]) -> Plan[list[Request]]:
    """Have commands done by the nodes that have their keys' slots, wherever that leads; returns them with replies.

    In the place of a reply may stand an error reply, or the CacheUnavailable of the node. A command without a key goes
    with the one before it. Whatever was sent to the wrong node is sent again: all of it may be repeated.
    """
    requests = _requests(commands)
    due: list[Request] = []
    failed: CacheUnavailable | None = None
    for request in requests:
        owner = state.owner(request.key)
        if owner is None and failed is None and (not state.is_known or state.is_due_once()):
            failed = yield FindSlots()
            owner = state.owner(request.key)
        if owner is None:
            request.replies = [failed or state.no_owner()] * len(request.commands)
        else:
            request.node = owner
            due.append(request)
    yield from _exchange(state, due)
    return requests


def replies(state: ClusterState, commands: Sequence[Command]) -> Plan[list[Any]]:
    """Route commands; returns their replies alone."""
    requests = yield from route(state, commands)
    return [reply for request in requests for reply in request.replies]


def about(replies: list[Any], query: str | None) -> list[Any]:
    """Return replies whose failures are about ``query``."""
    if query is None:
        return replies
    return [reply.about(query) if isinstance(reply, CacheUnavailable) else reply for reply in replies]


def read_entries(state: ClusterState, keys: Sequence[CacheKey]) -> Plan[Sequence[bytes | CacheUnavailable | None]]:
    """Read entries, their times by the reader's clock; a failure of one stands in its place."""
    found: list[bytes | CacheUnavailable | None] = []
    requests = yield from route(state, [("GET", key.entry) for key in keys])
    for key, request in zip(keys, requests, strict=True):
        try:
            found.append((yield from _entry(state, key, request)))
        except CacheUnavailable as error:
            found.append(error)
    return found


def read_again(state: ClusterState, key: CacheKey, node: Address, failed: CacheUnavailable) -> Plan[bytes | None]:
    """Read an entry after a read at a node has failed: elsewhere, if that leads anywhere.

    Raises:
        CacheUnavailable: it does not.
    """
    request = Request(key.entry, [("GET", key.entry)], node, replies=[failed])
    yield from _exchange(state, (yield from _misdirected(state, [request])))
    return (yield from _entry(state, key, request))


def find_slots(
    state: ClusterState, besides: Collection[Address], timeout_seconds: float
) -> Plan[CacheUnavailable | None]:
    """Ask one node after the other for the slots, for two timeouts at most; the last error where none has answered."""
    failed: CacheUnavailable | None = None
    began = monotonic_seconds()
    for address in state.slot_sources(besides):
        (reply,) = (yield Send({address: [SLOTS_REQUEST]}))[address]
        if state.update_slots(reply, address):
            return None
        failed = state.health_of(address).failure(reply, None) if isinstance(reply, RedisError) else reply
        if monotonic_seconds() - began >= timeout_seconds:
            break
    state.slots_refreshed(began)
    return failed if isinstance(failed, CacheUnavailable) else None


def learn_clocks(state: ClusterState, *, every: bool) -> Plan[None]:
    """Refresh the slots and learn the time of every node; of none but one, unless ``every``: where one is needed soon.

    That of the others is learnt then at their first reads.

    Raises:
        CacheUnavailable: no node has answered.
    """
    failed = (yield FindSlots()) if every or not state.is_known else None
    learnt: list[Address] = []
    for address in state.masters():
        error = yield LearnClock(address)
        if error is None:
            learnt.append(address)
            if not every:
                break
        failed = error or failed
    if not learnt:
        raise failed or state.no_owner()
    state.learn_from(learnt[0])


def _requests(commands: Sequence[Command]) -> list[Request]:
    requests: list[Request] = []
    for command in commands:
        if command[0] in {"WAIT", "TIME"}:
            requests[-1].commands.append(command)
        else:
            requests.append(Request(str(command[3 if command[0] in {"EVALSHA", "EVAL"} else 1]), [command]))
    return requests


def _exchange(state: ClusterState, due: Sequence[Request]) -> Plan[None]:
    """Send requests until each has its replies, or has been sent to five nodes."""
    for left in reversed(range(MAX_ROUNDS)):
        if due:
            yield from _send(due)
            due = (yield from _misdirected(state, due)) if left else []


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


def _misdirected(state: ClusterState, sent: Sequence[Request]) -> Plan[list[Request]]:
    """Return the requests to be sent again: to another node, or to one that has replied TRYAGAIN."""
    again: list[Request] = []
    pauses = False
    for request in sent:
        error = request.replies[0]
        if not isinstance(error, Exception):
            continue
        cause = error.__cause__ if isinstance(error, CacheUnavailable) else error
        if (redirection := state.redirected(cause, request.node)) is not None:
            request.node, request.is_ask = redirection
        elif isinstance(cause, TryAgainError):  # a slot is on its way, and one of two keys has arrived
            pauses = True
        elif is_outage(error) and (other := (yield from _other_owner(state, request))) is not None:
            request.node, request.is_ask = other, False
        else:
            continue
        again.append(request)
    if pauses:
        yield Pause(TRY_AGAIN_SECONDS)
    return again


def _other_owner(state: ClusterState, request: Request) -> Plan[Address | None]:
    """Return the node that has the slot now that its node has failed; None where it is the same."""
    if state.is_due_once():
        yield FindSlots(besides=(request.node,))
    other = state.owner(request.key)
    return None if other == request.node else other


def _entry(state: ClusterState, key: CacheKey, request: Request) -> Plan[bytes | None]:
    (reply,) = request.replies
    if isinstance(reply, CacheUnavailable):
        raise reply.about(key.query)
    health = state.health_of(request.node)
    raw = health.entry_of(reply, key.query)
    if not health.clock.is_known and (failed := (yield LearnClock(request.node))) is not None:
        raise failed.about(key.query)
    if not state.clock.is_known:
        state.learn_from(request.node)
    return state.to_reader_clock(raw, request.node)


def _address(host: Any, port: Any, source: Address) -> Address:
    name = host.decode() if isinstance(host, bytes) else str(host or "")
    # A node that does not know its own address reports none: it is where it was asked.
    return (name if name not in {"", "?"} else source[0]), int(port)


class Closes(Protocol):
    """A link that can be closed, from any thread."""

    def invalidate_all(self) -> None:
        """Leave the node: close connections, those in use as soon as they are not."""


L = TypeVar("L", bound=Closes)


class Nodes(Generic[L]):
    """Links to the nodes of a cluster, each made when it is first needed. Thread-safe, without a lock."""

    def __init__(self, make: Callable[[Address], L]) -> None:
        self._make = make
        self._links: dict[Address, L] = {}

    def __getitem__(self, address: Address) -> L:
        return self._links.get(address) or self._links.setdefault(address, self._make(address))

    def all(self) -> list[L]:
        """Return those that have been made."""
        return list(self._links.values())

    def keep_only(self, kept: Collection[Address]) -> None:
        """Leave the nodes that are in the cluster no more."""
        for address in [address for address in list(self._links) if address not in kept]:
            if (link := self._links.pop(address, None)) is not None:
                link.invalidate_all()
