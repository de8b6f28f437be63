"""The sync reader's link to a cluster: a link to each node that has slots."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from redis.exceptions import RedisError, ResponseError

from api_client.config.redis_url import Address, Topology, read_url
from api_client.errors import CacheUnavailable
from api_client.protocol.clock import monotonic_seconds
from api_client.protocol.keys import CacheKey
from api_client.protocol.lease import Call
from api_client.transport.cluster_state import (
    ASKING,
    MAX_REDIRECTIONS,
    SLOTS_REQUEST,
    TRY_AGAIN_SECONDS,
    ClusterState,
    is_to_be_repeated,
    leads_elsewhere,
    may_have_moved,
)
from api_client.transport.error_replies import is_wrong_type
from api_client.transport.link import CacheLink
from api_client.transport.scripts import Steps, by_text
from api_client.transport.wire import Command

T = TypeVar("T")


class ClusterLink(CacheLink):
    """As `CacheLink`: each key's node is asked, in one round trip.

    A node that is down makes its own keys unavailable, at once while its breaker is open; the others go on. Who has
    which slot is asked when a node does not answer (once a second at most), and together with the clocks; a node that
    has one no more says who does.
    """

    health: ClusterState

    def __init__(self, url: str, timeout_seconds: float, reply_seconds: float) -> None:
        # Its parts are those of the nodes' own links.
        self._url, self._timeout_seconds, self._reply_seconds = read_url(url), timeout_seconds, reply_seconds
        self.health = ClusterState(self._url.members)
        self._store = ClusterStore(self)
        self._nodes: dict[Address, CacheLink] = {}
        self._lock, self._learning = threading.RLock(), threading.RLock()
        self.health.on_slots_changed(self._keep_only)

    @property
    def store(self) -> Steps:
        """What runs steps for the publisher."""
        return self._store

    def read(self, key: CacheKey) -> bytes | None:
        """Return the entry's bytes, its times by the reader's clock; else as `CacheLink.read`."""
        owner, raw = self._routed(
            key.entry, key.query, lambda node: node.read(key), lambda node: _read_for_once(node, key)
        )
        return self._by_own_clock(raw, owner)

    def read_all(self, keys: Sequence[CacheKey]) -> Sequence[bytes | CacheUnavailable | None]:
        """Return the bytes of several entries, all nodes asked at one time; a node's error is that of its keys."""
        found: list[bytes | CacheUnavailable | None] = [None] * len(keys)
        places_of: dict[Address, list[int]] = {}
        for place, key in enumerate(keys):
            try:
                places_of.setdefault(self._owner(key.entry, key.query), []).append(place)
            except CacheUnavailable as error:
                found[place] = error
        under_way = [
            (owner, places, self._begun(owner, [keys[place] for place in places]))
            for owner, places in sorted(places_of.items())  # in one order: no two threads wait for each other
        ]
        for owner, places, begun in under_way:
            replies = self._replies(begun, len(places))
            for place, reply in zip(places, replies, strict=True):
                found[place] = self._found(keys[place], reply, owner)
        return found

    def begin_all(self, commands: Sequence[Command], query: str | None) -> Callable[[], list[object]]:
        """Send commands to the node of the first one's key."""
        return self._node(self._owner(str(commands[0][1]), query)).begin_all(commands, query)

    def run(self, call: Call[T], query: str | None) -> T:
        """Run one step of the lease record."""
        return self._routed(
            call.keys[0], query, lambda node: node.run(call, query), lambda node: _run_for_once(node, call, query)
        )[1]

    def run_each(self, calls: Sequence[Call[T]], query: str | None) -> list[T | CacheUnavailable]:
        """Run steps, those of one node in one round trip; one that fails ends alone."""
        places_of: dict[Address | None, list[int]] = {}
        for place, call in enumerate(calls):
            places_of.setdefault(self.health.owner(call.keys[0]), []).append(place)
        results: dict[int, T | CacheUnavailable] = {}
        for owner, places in places_of.items():
            results.update(zip(places, self._run_at(owner, [calls[place] for place in places], query), strict=True))
        return [results[place] for place in range(len(calls))]

    def run_and_wait(self, call: Call[T], query: str, *, replicas: int, timeout_seconds: float) -> tuple[T, int]:
        """Run one step and wait for replicas of its node: its reply, and how many have it."""

        def step(node: CacheLink) -> tuple[T, int]:
            return node.run_and_wait(call, query, replicas=replicas, timeout_seconds=timeout_seconds)

        # Nobody counts replicas while a slot moves.
        return self._routed(call.keys[0], query, step, lambda node: (_run_for_once(node, call, query), 0))[1]

    def learn_clock(self) -> None:
        """Ask every node for its time, and one for the slots.

        Raises:
            CacheUnavailable: none has answered.
        """
        failed = self._learn_slots()
        learnt: list[Address] = []
        for address in self.health.masters():
            try:
                self._node(address).learn_clock()
                learnt.append(address)
            except CacheUnavailable as error:
                failed = error
        if not learnt:
            raise failed or self.health.no_owner(None)
        self.health.learn_from(learnt[0])

    def close(self) -> None:
        """Close the connections to all nodes."""
        self._keep_only(())

    def _routed(
        self, key: str, query: str | None, step: Callable[[CacheLink], T], for_once: Callable[[CacheLink], T]
    ) -> tuple[Address, T]:
        """Do a step at the node that has the key's slot, wherever that leads: the node, and the reply.

        ``for_once`` is the step at a node to which the slot is only moving.
        """
        owner = self._owner(key, query)
        for left in reversed(range(MAX_REDIRECTIONS)):
            try:
                return owner, step(self._node(owner))
            except CacheUnavailable as error:
                redirection = self.health.redirected(error.__cause__, owner)
                if redirection is not None and redirection.is_ask:
                    return redirection.address, for_once(self._node(redirection.address))
                if not left:
                    raise
                if redirection is not None:
                    owner = redirection.address
                elif is_to_be_repeated(error.__cause__):
                    time.sleep(TRY_AGAIN_SECONDS)
                else:
                    owner = self._other_owner(error, owner, key)
        raise AssertionError("the last round has returned or raised")

    def _owner(self, key: str, query: str | None) -> Address:
        owner = self.health.owner(key)
        if owner is None and (not self.health.is_known or self.health.is_due_once()):
            failed = self._learn_slots()
            owner = self.health.owner(key)
            if owner is None and failed is not None:
                raise failed if query is None else failed.about(query)
        if owner is None:
            raise self.health.no_owner(query)
        return owner

    def _other_owner(self, error: CacheUnavailable, owner: Address, key: str) -> Address:
        """Return who has the slot now that its node has failed; raise ``error`` where it is the same."""
        if may_have_moved(error):
            if self.health.is_due_once():
                self._learn_slots(besides=(owner,))
            other = self.health.owner(key)
            if other not in (None, owner):
                return other
        raise error

    def _learn_slots(self, besides: Collection[Address] = ()) -> CacheUnavailable | None:
        """Ask for the slots, for two timeouts at most; the error where nobody has told."""
        was_known = self.health.is_known
        try:  # in here, for a signal handler may raise as soon as it is held
            # Without slots all wait for who asks for them.
            if not self._learning.acquire(timeout=0 if was_known else 2 * self._timeout_seconds):
                return None
            return None if self.health.is_known and not was_known else self._ask_for_slots(besides)
        finally:
            try:  # noqa: SIM105 - one call more could be interrupted
                self._learning.release()
            except RuntimeError:  # another thread has it
                pass

    def _ask_for_slots(self, besides: Collection[Address]) -> CacheUnavailable | None:
        failed: CacheUnavailable | None = None
        began = monotonic_seconds()
        for address in self.health.slot_sources(besides):
            try:
                (reply,) = self._node(address).ask_all([SLOTS_REQUEST], None)
            except CacheUnavailable as error:
                failed = error
            else:
                if self.health.take(reply, address):
                    return None
                failed = self._node(address).health.failure(reply, None) if isinstance(reply, RedisError) else None
            if monotonic_seconds() - began >= self._timeout_seconds:
                break
        self.health.slots_refreshed(began)
        return failed

    def _node(self, address: Address) -> CacheLink:
        found = self._nodes.get(address)
        if found is None:
            with self._lock:
                found = self._nodes.get(address)
                if found is None:
                    url, health = self._url.url_of(address), self.health.health_of(address)
                    found = self._nodes[address] = CacheLink(url, self._timeout_seconds, self._reply_seconds, health)
        return found

    def _keep_only(self, kept: Collection[Address]) -> None:
        with self._lock:
            gone = [self._nodes.pop(address) for address in list(self._nodes) if address not in kept]
        for node in gone:
            node.close()

    def _begun(self, owner: Address, keys: Sequence[CacheKey]) -> Callable[[], list[object]] | CacheUnavailable:
        try:
            return self._node(owner).begin_all([("GET", key.entry) for key in keys], keys[0].query)
        except CacheUnavailable as error:
            return error

    @staticmethod
    def _replies(begun: Callable[[], list[object]] | CacheUnavailable, count: int) -> Sequence[object]:
        if not isinstance(begun, CacheUnavailable):
            try:
                return begun()
            except CacheUnavailable as error:
                begun = error
        return [begun] * count

    def _found(self, key: CacheKey, reply: object, owner: Address) -> bytes | CacheUnavailable | None:
        """Return what came of one of many: an error of its own leads to a read of its own, which goes further."""
        try:
            if isinstance(reply, CacheUnavailable):
                self._other_owner(reply, owner, key.entry)
            elif not isinstance(reply, RedisError) or is_wrong_type(reply):
                return self._by_own_clock(self._node(owner).health.entry_of(reply, key.query), owner)
            return self.read(key)
        except CacheUnavailable as error:
            return error.about(key.query)

    def _by_own_clock(self, raw: bytes | None, owner: Address) -> bytes | None:
        if not self.health.health_of(owner).clock.is_known:
            self._node(owner).learn_clock()
        if not self.health.clock.is_known:
            self.health.learn_from(owner)
        return self.health.shifted(raw, owner)

    def _run_at(
        self, owner: Address | None, calls: Sequence[Call[T]], query: str | None
    ) -> Sequence[T | CacheUnavailable]:
        """Run what one node has to do; what it leads elsewhere, or what has no node yet, is run alone."""
        if owner is None:
            return [self._run_alone(call, query) for call in calls]
        try:
            results = self._node(owner).run_each(calls, query)
        except CacheUnavailable as error:
            results = [error] * len(calls)
        return [
            self._run_alone(call, query, result, owner) if isinstance(result, CacheUnavailable) else result
            for call, result in zip(calls, results, strict=True)
        ]

    def _run_alone(
        self, call: Call[T], query: str | None, failed: CacheUnavailable | None = None, owner: Address | None = None
    ) -> T | CacheUnavailable:
        """Run one of many, where that can come to more than what it has met."""
        try:
            if failed is not None and owner is not None and not leads_elsewhere(failed):
                self._other_owner(failed, owner, call.keys[0])
            return self.run(call, query)
        except CacheUnavailable as error:
            return error


def _read_for_once(node: CacheLink, key: CacheKey) -> bytes | None:
    _, reply = node.ask_all([ASKING, ("GET", key.entry)], key.query)
    return node.health.entry_of(reply, key.query)


def _run_for_once(node: CacheLink, call: Call[T], query: str | None) -> T:
    _, reply = node.ask_all([ASKING, by_text(call)], query)
    if isinstance(reply, RedisError):
        raise node.health.failure(reply, query) from reply
    return call.parse(reply)


class ClusterStore:
    """Runs steps as `LeaseStore` does, on the nodes of a link: where one is down, its breaker answers for it."""

    def __init__(self, link: ClusterLink) -> None:
        self._link = link

    def run(self, call: Call[T]) -> T:
        """Run one step.

        Raises:
            CacheUnavailable.
        """
        return self._link.run(call, None)

    def run_all(self, calls: Sequence[Call[T]]) -> list[T]:
        """Run steps, those of one node in one round trip.

        Raises:
            CacheUnavailable: all have failed.
            redis.exceptions.ResponseError: some have: run alone, each has a result of its own.
        """
        replies = self._link.run_each(calls, None)
        done = [reply for reply in replies if not isinstance(reply, CacheUnavailable)]
        for reply in replies:
            if isinstance(reply, CacheUnavailable):
                raise ResponseError("some of the steps have failed") if done else reply
        return done


def open_link(url: str, timeout_seconds: float, reply_seconds: float) -> CacheLink:
    """Return the sync reader's link for a URL; nothing is sent yet. Times as for `Connections`.

    Raises:
        ConfigurationError: the URL can't be used.
    """
    link = ClusterLink if read_url(url).topology is Topology.CLUSTER else CacheLink
    return link(url, timeout_seconds, reply_seconds)
