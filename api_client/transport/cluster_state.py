"""What the links of a reader know of a cluster: which node has which slot, how each node is, what its clock shows.

Each node has a clock of its own, and stamps its entries by it. One clock is the reader's (`Health.clock`); the times in
an entry of another node are moved by what lies between the two, so that nothing else has to know of nodes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple

from redis.crc import key_slot
from redis.exceptions import AskError, ClusterDownError, MovedError, ResponseError, TryAgainError

from api_client.config.redis_url import Address
from api_client.errors import CacheUnavailable
from api_client.protocol.clock import monotonic_seconds
from api_client.protocol.entry import moved
from api_client.transport.health import Health

SLOTS: Final = 16_384
MAX_REDIRECTIONS: Final = 5
TRY_AGAIN_SECONDS: Final = 0.02
REFRESH_SECONDS: Final = 1.0
MIN_SHIFT_US: Final = 10_000  # what clocks that are kept by one source differ by, and a round trip's half

SLOTS_REQUEST: Final = ("CLUSTER", "SLOTS")
ASKING: Final = ("ASKING",)


class Redirection(NamedTuple):
    """Another node to ask; ``is_ask``: it has this key already, and not yet its slot (after ASKING)."""

    address: Address
    is_ask: bool


class ClusterState(Health):
    """Slots and nodes, shared by the sync and the async link. Thread-safe; no I/O.

    ``clock`` is the reader's, ``breaker`` is not used: each node has one.

    Args:
        seeds: the nodes that the URL names.
    """

    def __init__(self, seeds: Sequence[Address]) -> None:
        super().__init__()
        self._seeds = list(seeds)
        self._owners: list[Address | None] = [None] * SLOTS
        self._healths: dict[Address, Health] = {}
        self._keep_only: list[Callable[[Collection[Address]], object]] = []
        self._lock = threading.RLock()
        self._refresh_at = 0.0
        self.is_known: bool = False

    def on_slots_changed(self, keep_only: Callable[[Collection[Address]], object]) -> None:
        """Have ``keep_only`` called with the nodes that may be asked, on whatever thread learns of the slots."""
        self._keep_only.append(keep_only)

    def owner(self, key: str) -> Address | None:
        """Return the node that has a key's slot; None where none is known to."""
        return self._owners[key_slot(key.encode())]

    def masters(self) -> list[Address]:
        """Return the nodes that have slots, always in the same order."""
        return sorted({owner for owner in self._owners if owner is not None})

    def slot_sources(self, besides: Collection[Address] = ()) -> list[Address]:
        """Return whom to ask about the slots: the masters that answer, those that do not, the URL's nodes."""
        known = [address for address in self.masters() if address not in besides]
        known.sort(key=lambda address: self.health_of(address).breaker.is_open)
        return known + [seed for seed in self._seeds if seed not in known and seed not in besides]

    def health_of(self, address: Address) -> Health:
        """Return the breaker and the clock of one node."""
        found = self._healths.get(address)
        if found is None:
            with self._lock:
                found = self._healths.setdefault(address, Health())
        return found

    def is_due_once(self) -> bool:
        """Tell whether the slots may be asked for; then not again for a second."""
        with self._lock:
            now = monotonic_seconds()
            if now < self._refresh_at:
                return False
            self._refresh_at = now + REFRESH_SECONDS
            return True

    def slots_refreshed(self, began: float) -> None:
        """Note that whoever began to ask then (monotonic seconds) is done; nobody is held up soon again."""
        now = monotonic_seconds()
        with self._lock:
            self._refresh_at = now + max(REFRESH_SECONDS, 2 * (now - began))

    def take(self, reply: object, told_by: Address) -> bool:
        """Take over the reply to CLUSTER SLOTS; False where it is an error, or names no slot."""
        if not isinstance(reply, list) or not reply:
            return False
        owners: list[Address | None] = [None] * SLOTS
        for first, last, master, *_ in reply:
            owners[first : last + 1] = [_address(master[0], master[1], told_by)] * (last + 1 - first)
        with self._lock:
            self._owners = owners
            self.is_known = True
            for gone in self._healths.keys() - set(owners) - set(self._seeds):
                del self._healths[gone]
        kept = {*self.masters(), *self._seeds}
        for keep_only in self._keep_only:
            keep_only(kept)
        return True

    def redirected(self, error: BaseException | None, by: Address) -> Redirection | None:
        """Return where a reply leads; None where it does not. A moved slot is noted."""
        if not isinstance(error, AskError):  # a MovedError is one
            return None
        address = _address(error.host, error.port, by)
        if not isinstance(error, MovedError):
            return Redirection(address, is_ask=True)
        with self._lock:
            self._owners[error.slot_id] = address
        return Redirection(address, is_ask=False)

    def shifted(self, raw: bytes | None, address: Address) -> bytes | None:
        """Return an entry of a node with its times by the reader's clock."""
        clock = self.health_of(address).clock
        if not raw or not clock.is_known or not self.clock.is_known:
            return raw
        by_us = self.clock.at_us(0.0) - clock.at_us(0.0)
        return raw if abs(by_us) < MIN_SHIFT_US else moved(raw, by_us)

    def learn_from(self, address: Address) -> None:
        """Make a node's clock the reader's."""
        self.clock.learn(self.health_of(address).clock.now_us(), asked_at=monotonic_seconds())

    def no_owner(self, query: str | None) -> CacheUnavailable:
        """Return the error for a key whose slot no node is known to have."""
        return CacheUnavailable("the cache's cluster can't be used: no node is known to have this key", query=query)


def is_to_be_repeated(error: BaseException | None) -> bool:
    """Tell whether a node asks for patience: a slot is on its way, and one of two keys has arrived."""
    return isinstance(error, TryAgainError)


def leads_elsewhere(error: CacheUnavailable) -> bool:
    """Tell whether a node has answered that its part of the slots is changing."""
    return isinstance(error.__cause__, AskError | TryAgainError)


def may_have_moved(error: CacheUnavailable) -> bool:
    """Tell whether a failure says that another node may have the slots now: silence, a lost connection, a node down."""
    cause = error.__cause__
    # Without a cause the breaker is open. Any other answer is the node's own.
    return cause is None or isinstance(cause, ClusterDownError) or not isinstance(cause, ResponseError)


def _address(host: Any, port: Any, told_by: Address) -> Address:
    name = host.decode() if isinstance(host, bytes) else str(host or "")
    # A node that does not know its own address tells none: it is where it was asked.
    return (name if name not in {"", "?"} else told_by[0]), int(port)
