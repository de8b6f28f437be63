"""The sync link to Redis: bounded in time, behind a breaker, with Redis' clock; to one node, or to a cluster's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from redis.exceptions import RedisError

from api_client.config.redis_url import Address, Topology, read_url
from api_client.errors import CacheUnavailable
from api_client.protocol.clock import monotonic_seconds
from api_client.protocol.keys import CacheKey
from api_client.protocol.lease import Call
from api_client.transport import cluster
from api_client.transport.cluster import ClusterState, FindSlots, LearnClock, Nodes, Pause, Send, Step
from api_client.transport.connection_maker import READER, connection_maker
from api_client.transport.health import TIME_REQUEST, Health
from api_client.transport.pool import Connections
from api_client.transport.scripts import by_text_and_wait, drive, none_failed, script_plan
from api_client.transport.wire import Command, is_wrong_node, pack, pack_all, pack_get

T = TypeVar("T")

Patience: TypeAlias = Callable[[Callable[[], list[Any]]], list[Any]]
"""Repeats an exchange, which returns replies with errors in their places, until it accepts them."""


class CacheLink:
    """Reads entries and runs lease steps; every failure is a CacheUnavailable, at once while the breaker is open.

    All goes over connections of its own, which cost half of what redis-py's do. Behind Sentinels, steps
    query them once a second, since they write: a good connection does not show that its node is no longer the master.

    Args:
        url: as `redis_url` reads it; of one node, or of Sentinels.
        timeout_seconds, reply_seconds: as for `Connections`.
        health: default: one of its own.
        role: `READER` or `WORKER`, for the connections' names.
        patience: sends steps again. Such a link has no breaker.
    """

    def __init__(
        self,
        url: str,
        timeout_seconds: float,
        reply_seconds: float,
        health: Health | None = None,
        *,
        role: str = READER,
        patience: Patience | None = None,
    ) -> None:
        self.health: Health = health or Health(breaks=patience is None)
        self._patience = patience
        self._make = connection_maker(url, timeout_seconds=timeout_seconds, known=self.health.master, role=role)
        self._connections = Connections(self._make, timeout_seconds=timeout_seconds, reply_seconds=reply_seconds)
        self.health.master.on_change(self._connections.invalidate_all)

    def read(self, key: CacheKey) -> bytes | None:
        """Return the entry's bytes (``b""`` where the key is no string), or None where there is none."""
        if self.health.breaker.is_open:
            self.health.check(key.query)
        try:
            reply = self._connections.ask(pack_get(key.entry))
        except (RedisError, OSError) as error:
            raise self.health.failure(error, key.query) from error
        if reply.__class__ is not bytes and is_wrong_node(reply):
            self._leave_node()
        return self.health.entry_of(reply, key.query)

    def read_all(self, keys: Sequence[CacheKey]) -> Sequence[bytes | CacheUnavailable | None]:
        """Return the bytes of several entries, in one round trip."""
        replies = self.ask_all([("GET", key.entry) for key in keys], keys[0].query)
        return [self.health.entry_of(reply, key.query) for key, reply in zip(keys, replies, strict=True)]

    def ask_all(self, commands: Sequence[Command], query: str | None = None) -> list[Any]:
        """Send commands in one round trip and return their replies; an error reply is returned as an exception."""
        if len(commands) > 1:
            return self.begin_all(commands, query)()
        self.health.check(query)
        request = pack(*commands[0])  # one alone costs half of what a batch does
        return self._checked([self._translated(lambda: self._connections.ask(request), query)])

    def begin_all(self, commands: Sequence[Command], query: str | None = None) -> Callable[[], list[Any]]:
        """Send commands now, and return what waits for their replies, which are those of `ask_all`; call it once."""
        self.health.check(query)
        request = pack_all(commands)
        finish = self._translated(lambda: self._connections.begin(request, len(commands)), query)
        return lambda: self._checked(self._translated(finish, query))

    def run(self, call: Call[T], query: str | None = None) -> T:
        """Run one step of the lease record."""
        return none_failed(self.run_each([call], query))[0]

    def run_all(self, calls: Sequence[Call[T]]) -> list[T]:
        """Run steps as `run_each`; the first failure is raised."""
        return none_failed(self.run_each(calls))

    def run_each(self, calls: Sequence[Call[T]], query: str | None = None) -> list[T | CacheUnavailable]:
        """Run steps in one round trip (two when Redis has forgotten a script); one that fails ends alone."""
        if not calls:
            return []
        replies = drive(script_plan(calls), lambda commands: self._ask_patiently(commands, query))
        return [self._result(call, reply, query) for call, reply in zip(calls, replies, strict=True)]

    def run_and_wait(self, call: Call[T], query: str, *, replicas: int, timeout_seconds: float) -> tuple[T, int]:
        """Run one step and wait for replicas: its reply, and how many have it."""
        commands = by_text_and_wait(call, replicas=replicas, timeout_seconds=timeout_seconds)
        reply, acknowledged = self._ask_patiently(commands, query)
        count = self._result(Call("", call.keys, (), int), acknowledged, query)
        return none_failed([self._result(call, reply, query)])[0], none_failed([count])[0]

    def now_us(self) -> int:
        """Return Redis' time, queried only if it is not known yet."""
        if not self.health.clock.is_known:
            self.sync_clock()
        return self.health.clock.now_us()

    def sync_clock(self) -> None:
        """Query Redis' time; behind Sentinels, also whether this node is still the master."""
        self.health.check(None)
        self._poll_sentinels()
        asked_at = monotonic_seconds()
        self.health.set_clock(self._translated(lambda: self._connections.ask(TIME_REQUEST), None), asked_at=asked_at)

    def invalidate_all(self) -> None:
        """Leave the node: close the connections; one that is in use when it is given back."""
        self._connections.invalidate_all()

    def close(self) -> None:
        """Close the connections, as `invalidate_all`, and those to the Sentinels."""
        self._connections.invalidate_all()
        if self._make.resolver is not None:
            self._make.resolver.close()

    def _ask_patiently(self, commands: Sequence[Command], query: str | None) -> list[Any]:
        if self._patience is None:
            return self._ask_each(commands, query)
        return self._patience(lambda: self._ask_each(commands, query))

    def _ask_each(self, commands: Sequence[Command], query: str | None) -> list[Any]:
        """Send what writes; where it fails, the failure is each one's reply."""
        if not self.health.breaker.is_waiting():
            self._poll_sentinels()
        return _in_place(lambda: self.ask_all(commands, query), len(commands))

    def _poll_sentinels(self) -> None:
        if self._make.resolver is not None:
            self._make.resolver.poll()

    def _result(self, call: Call[T], reply: Any, query: str | None) -> T | CacheUnavailable:
        if isinstance(reply, RedisError):
            return self._health_of(call.keys[0]).failure(reply, query)
        return reply if isinstance(reply, CacheUnavailable) else call.parse(reply)

    def _health_of(self, _key: str) -> Health:
        return self.health

    def _translated(self, exchange: Callable[[], T], query: str | None) -> T:
        try:
            return exchange()
        except (RedisError, OSError) as error:
            raise self.health.failure(error, query) from error

    def _checked(self, replies: list[Any]) -> list[Any]:
        """Report to the breaker that replies have come, and leave a node that says that it is no master."""
        if any(map(is_wrong_node, replies)):
            self._leave_node()
        else:
            self.health.breaker.succeeded()
        return replies

    def _leave_node(self) -> None:
        # A demoted master: connections to it are of no use, the next ones find the new one.
        self._connections.invalidate_all()


class ClusterLink(CacheLink):
    """As `CacheLink`: commands go to each key's node, in one round trip.

    A node that is down makes its own keys unavailable, at once while its breaker is open; the others go on. Slots are
    refreshed when a node does not answer (once a second at most), and together with the clocks; a node that has lost
    one redirects.
    """

    health: ClusterState

    def __init__(
        self,
        url: str,
        timeout_seconds: float,
        reply_seconds: float,
        *,
        role: str = READER,
        patience: Patience | None = None,
    ) -> None:
        # Its connections are those of the nodes' own links.
        parsed = read_url(url)
        self._patience, self._timeout_seconds = patience, timeout_seconds
        self.health = ClusterState(parsed.members, breaks=patience is None)
        self._finding = threading.RLock()
        self._nodes = Nodes(
            lambda node: CacheLink(
                parsed.url_of(node), timeout_seconds, reply_seconds, self.health.health_of(node), role=role
            )
        )
        self.health.on_slots_changed(self._nodes.keep_only)

    def read(self, key: CacheKey) -> bytes | None:
        """Return the entry's bytes, its times by the reader's clock; else as `CacheLink.read`."""
        node = self.health.ready_owner(key.entry)
        if node is None:
            return none_failed(self.read_all([key]))[0]
        try:
            return self.health.to_reader_clock(self._nodes[node].read(key), node)  # a plan would cost a fifth of a hit
        except CacheUnavailable as error:
            return drive(cluster.read_again(self.health, key, node, error), self._do)

    def read_all(self, keys: Sequence[CacheKey]) -> Sequence[bytes | CacheUnavailable | None]:
        """Return the bytes of several entries, from all nodes at one time; a node's error is that of its keys."""
        return drive(cluster.read_entries(self.health, keys), self._do)

    def ask_all(self, commands: Sequence[Command], query: str | None = None) -> list[Any]:
        """Send commands, each to the node of its key."""
        return none_failed(self._ask_each(commands, query))

    def sync_clock(self) -> None:
        """Query the time of every node, and the slots of one.

        Raises:
            CacheUnavailable: none has answered.
        """
        drive(cluster.learn_clocks(self.health, every=True), self._do)

    def invalidate_all(self) -> None:
        """Close the connections to all nodes."""
        self._nodes.keep_only(())

    def close(self) -> None:
        """Close the connections to all nodes."""
        self.invalidate_all()

    def _ask_each(self, commands: Sequence[Command], query: str | None) -> list[Any]:
        replies = drive(cluster.replies(self.health, commands), self._do)
        return cluster.about(replies, query)

    def _health_of(self, key: str) -> Health:
        return self.health.health_of_owner(key)

    def _do(self, step: Step) -> Any:
        match step:
            case Send(by_node):
                return self._send(by_node)
            case Pause(duration_seconds):
                time.sleep(duration_seconds)
            case FindSlots(besides):
                return self._find_slots(besides)
            case LearnClock(node):
                try:
                    self._nodes[node].sync_clock()
                except CacheUnavailable as error:
                    return error
        return None

    def _send(self, by_node: Mapping[Address, Sequence[Command]]) -> dict[Address, Sequence[Any]]:
        if len(by_node) == 1:
            ((node, commands),) = by_node.items()
            return {node: _in_place(lambda: self._nodes[node].ask_all(commands), len(commands))}
        # In one order: no two threads wait for each other.
        begun = {node: self._begun(node, commands) for node, commands in sorted(by_node.items())}
        return {node: replies() for node, replies in begun.items()}

    def _begun(self, node: Address, commands: Sequence[Command]) -> Callable[[], list[Any]]:
        try:
            finish = self._nodes[node].begin_all(commands)
        except CacheUnavailable as error:
            failed = [error] * len(commands)
            return lambda: failed
        return lambda: _in_place(finish, len(commands))

    def _find_slots(self, besides: Collection[Address]) -> CacheUnavailable | None:
        was_known = self.health.is_known
        try:  # in here, for a signal handler may raise as soon as it is held
            # Without slots all wait for the thread that queries them.
            if not self._finding.acquire(timeout=0 if was_known else 2 * self._timeout_seconds):
                return None
            if self.health.is_known and not was_known:
                return None
            return drive(cluster.find_slots(self.health, besides, self._timeout_seconds), self._do)
        finally:
            try:  # noqa: SIM105 - one call more could be interrupted
                self._finding.release()
            except RuntimeError:  # another thread has it
                pass


def _in_place(exchange: Callable[[], list[Any]], count: int) -> list[Any]:
    """Return the replies of a node; its failure stands in the place of each."""
    try:
        return exchange()
    except CacheUnavailable as error:
        return [error] * count


def open_link(
    url: str, timeout_seconds: float, reply_seconds: float, *, role: str = READER, patience: Patience | None = None
) -> CacheLink:
    """Return the sync link for a URL; nothing is sent yet. Arguments as for `CacheLink`.

    Raises:
        ConfigurationError: the URL can't be used.
    """
    link = ClusterLink if read_url(url).topology is Topology.CLUSTER else CacheLink
    return link(url, timeout_seconds, reply_seconds, role=role, patience=patience)
