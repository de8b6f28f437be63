"""The sync link to the cache, of one node or a cluster: bounded in time, behind breakers, with Redis' clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from redis.exceptions import RedisError

from api_client.config.redis_url import Address, Topology, read_url
from api_client.errors import CacheUnavailable
from api_client.protocol.clock import monotonic_seconds
from api_client.protocol.keys import CacheKey
from api_client.protocol.lease import Call
from api_client.transport.cluster import Cluster
from api_client.transport.connection_maker import READER, connection_maker
from api_client.transport.health import TIME_REQUEST, NodeHealth
from api_client.transport.pool import Connections
from api_client.transport.routing import FindSlots, Nodes, Pause, Plan, Routes, Send, Step, SyncClock
from api_client.transport.scripts import Until, by_text_and_wait, drive, none_failed, script_plan
from api_client.transport.sentinel import MasterAddress
from api_client.transport.wire import Command, is_wrong_node, pack, pack_all, pack_get

T = TypeVar("T")

Patience: TypeAlias = Callable[[Callable[[], list[Any]], Until], list[Any]]
"""Repeats an exchange until enough of its replies are answers rather than errors."""


class CacheNode:
    """One Redis, or the master that Sentinels name; failures are CacheUnavailable, at once while its breaker is open.

    It uses its own connections, which cost half of redis-py's.

    Args:
        url: the URL of one node, or of Sentinels.
        timeout_seconds, reply_seconds: as for `Connections`.
        master: the master's address behind Sentinels, kept up to date.
        role: `READER` or `WORKER`, for the connections' names.
    """

    def __init__(
        self,
        url: str,
        timeout_seconds: float,
        reply_seconds: float,
        health: NodeHealth,
        *,
        master: MasterAddress,
        role: str,
    ) -> None:
        self.health: NodeHealth = health
        self._make = connection_maker(url, timeout_seconds=timeout_seconds, known=master, role=role)
        self._connections = Connections(self._make, timeout_seconds=timeout_seconds, reply_seconds=reply_seconds)
        if self._make.resolver is not None:
            master.on_change(self._connections.invalidate_connections)

    def read(self, key: CacheKey) -> bytes | None:
        """Return the entry's bytes (``b""`` where the key is no string), or None where there is none."""
        if self.health.breaker.is_open:
            self.health.check(key.query)
        try:
            reply = self._connections.execute(pack_get(key.entry))
        except (RedisError, OSError) as error:
            raise self.health.failure(error, key.query) from error
        if reply.__class__ is not bytes and is_wrong_node(reply):
            self.invalidate_connections()
        return self.health.entry_of(reply, key.query)

    def execute_all(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one round trip and return their replies; an error reply is returned as an exception."""
        if len(commands) > 1:
            return self.begin_all(commands)()
        self.health.check(None)
        request = pack(*commands[0])  # a single command costs half of a batch
        return self._checked([self._translated(lambda: self._connections.execute(request))])

    def begin_all(self, commands: Sequence[Command]) -> Callable[[], list[Any]]:
        """Send commands now, and return a function that waits for replies as `execute_all` does; call it once."""
        self.health.check(None)
        request = pack_all(commands)
        finish = self._translated(lambda: self._connections.begin(request, len(commands)))
        return lambda: self._checked(self._translated(finish))

    def sync_clock(self) -> None:
        """Query Redis' time and, behind Sentinels, whether this node is still the master."""
        self.health.check(None)
        if self._make.resolver is not None:
            self._make.resolver.poll()
        asked_at = monotonic_seconds()
        self.health.set_clock(self._translated(lambda: self._connections.execute(TIME_REQUEST)), asked_at=asked_at)

    def before_writing(self) -> None:
        """Query the Sentinels, once a second, since a good connection does not reveal that its node was demoted."""
        if self._make.resolver is not None and not self.health.breaker.is_waiting():
            self._make.resolver.poll()

    def invalidate_connections(self) -> None:
        """Leave the node: close its connections, those in use as soon as they are released."""
        self._connections.invalidate_connections()

    def close(self) -> None:
        """Close the connections, as `invalidate_connections` does, and those to the Sentinels."""
        self._connections.invalidate_connections()
        if self._make.resolver is not None:
            self._make.resolver.close()

    def _translated(self, exchange: Callable[[], T]) -> T:
        try:
            return exchange()
        except (RedisError, OSError) as error:
            raise self.health.failure(error, None) from error

    def _checked(self, replies: list[Any]) -> list[Any]:
        """Report the replies to the breaker, and leave a node that replies that it is no master."""
        if any(map(is_wrong_node, replies)):
            self.invalidate_connections()  # those to a demoted master are useless; the next find the new one
        else:
            self.health.breaker.succeeded()
        return replies


class CacheLink:
    """Reads entries and runs lease steps; every failure is a CacheUnavailable, at once while a breaker is open.

    Args:
        url: a URL as `redis_url` reads it; nothing is sent yet.
        timeout_seconds, reply_seconds, role: as for `CacheNode`.
        patience: sends steps again; a link with patience has no breakers.

    Raises:
        ConfigurationError: the URL can't be used.
    """

    def __init__(
        self,
        url: str,
        timeout_seconds: float,
        reply_seconds: float,
        *,
        role: str = READER,
        patience: Patience | None = None,
    ) -> None:
        parsed, breaks = read_url(url), patience is None
        is_cluster = parsed.topology is Topology.CLUSTER
        routes = Cluster(parsed, timeout_seconds, breaks=breaks) if is_cluster else Routes(url, breaks=breaks)
        self.routes: Routes = routes
        self._patience, self._timeout_seconds = patience, timeout_seconds
        self._searching = threading.RLock()
        self._nodes = Nodes(
            lambda node: CacheNode(
                routes.url_of(node), timeout_seconds, reply_seconds, routes.health_of(node),
                master=routes.master, role=role,
            )
        )  # fmt: skip
        self._only_node = self._nodes[Routes.ONLY_NODE] if routes.is_single else None
        routes.on_nodes_changed(self._nodes.keep_only)

    def read(self, key: CacheKey) -> bytes | None:
        """Return the entry's bytes, as `CacheNode.read` does, with times by the reader's clock."""
        node = self.routes.ready_owner(key.entry)
        if node is None:
            return none_failed(self.read_all([key]))[0]
        try:
            return self.routes.to_reader_clock(self._nodes[node].read(key), node)  # a plan would cost a fifth of a hit
        except CacheUnavailable as error:
            return drive(self.routes.read_again(key, node, error), self._do)

    def read_all(self, keys: Sequence[CacheKey]) -> Sequence[bytes | CacheUnavailable | None]:
        """Return the bytes of several entries in one round trip, from all nodes at the same time."""
        return drive(self.routes.entries(keys), self._do)

    def execute_all(self, commands: Sequence[Command], query: str | None = None) -> list[Any]:
        """Send commands, each to the node of its key, and return their replies, as `CacheNode.execute_all` does."""
        return none_failed(drive(self.routes.replies(commands, query), self._do))

    def run(self, call: Call[T], query: str | None = None) -> T:
        """Run one step of the lease record."""
        return none_failed(self.run_each([call], query))[0]

    def run_all(self, calls: Sequence[Call[T]]) -> list[T]:
        """Run steps as `run_each` does, and raise the first failure."""
        return none_failed(self.run_each(calls))

    def run_each(
        self, calls: Sequence[Call[T]], query: str | None = None, *, until: Until = all
    ) -> list[T | CacheUnavailable]:
        """Run steps in one round trip (two if Redis has forgotten a script); a failed one does not end the others.

        ``until`` limits patience, so that a node that does not answer need not hold up another one's results.
        """
        if not calls:
            return []
        replies = drive(script_plan(calls), lambda commands: self._write(commands, query, until))
        return self.routes.results(calls, replies, query)

    def run_and_wait(self, call: Call[T], query: str, *, replicas: int, timeout_seconds: float) -> tuple[T, int]:
        """Run one step and wait for replicas; return its reply and the number of replicas that have it."""
        commands = by_text_and_wait(call, replicas=replicas, timeout_seconds=timeout_seconds)
        reply, acknowledged = self._write(commands, query)
        (done,) = none_failed(self.routes.results([call], [reply], query))
        (count,) = none_failed(self.routes.results([Call("", call.keys, (), int)], [acknowledged], query))
        return done, count

    def now_us(self) -> int:
        """Return Redis' time, queried only if still unknown."""
        if not self.routes.clock.is_known:
            self.sync_clock()
        return self.routes.clock.now_us()

    def sync_clock(self) -> None:
        """Query the time of every node, and the slots of a cluster.

        Raises:
            CacheUnavailable: no node has answered.
        """
        drive(self.routes.sync_clocks(every=True), self._do)

    def invalidate_connections(self) -> None:
        """Leave the nodes: close their connections, those in use as soon as they are released."""
        self._nodes.invalidate_connections()

    def close(self) -> None:
        """Close all connections."""
        self._nodes.close()

    def _write(self, commands: Sequence[Command], query: str | None, until: Until = all) -> list[Any]:
        if self._patience is None:
            return self._exchange(commands, query)
        return self._patience(lambda: self._exchange(commands, query), until)

    def _exchange(self, commands: Sequence[Command], query: str | None) -> list[Any]:
        if self._only_node is not None:
            self._only_node.before_writing()
        return drive(self.routes.replies(commands, query), self._do)

    def _do(self, step: Step) -> Any:
        match step:
            case Send(by_node):
                return self._send(by_node)
            case Pause(duration_seconds):
                time.sleep(duration_seconds)
            case FindSlots(search, waits):
                return self._search_alone(search, waits=waits)
            case SyncClock(node):
                try:
                    self._nodes[node].sync_clock()
                except CacheUnavailable as error:
                    return error
        return None

    def _send(self, by_node: Mapping[Address, Sequence[Command]]) -> dict[Address, Sequence[Any]]:
        if len(by_node) == 1:
            ((node, commands),) = by_node.items()
            return {node: _in_place(lambda: self._nodes[node].execute_all(commands), len(commands))}
        # Nodes that answer come first, since connecting to a silent one takes a timeout. Otherwise the order is fixed,
        # so that threads do not wait for each other.
        nodes = sorted(by_node, key=lambda node: (self.routes.health_of(node).breaker.failed_at > 0, node))
        begun = {node: self._begun(node, by_node[node]) for node in nodes}
        return {node: replies() for node, replies in begun.items()}

    def _begun(self, node: Address, commands: Sequence[Command]) -> Callable[[], list[Any]]:
        try:
            finish = self._nodes[node].begin_all(commands)
        except CacheUnavailable as error:
            failed = [error] * len(commands)
            return lambda: failed
        return lambda: _in_place(finish, len(commands))

    def _search_alone(
        self, search: Callable[[], Plan[CacheUnavailable | None]], *, waits: bool
    ) -> CacheUnavailable | None:
        try:  # within the try, since a signal handler may raise as soon as the lock is held
            if not self._searching.acquire(timeout=2 * self._timeout_seconds if waits else 0):
                return None
            return drive(search(), self._do)
        finally:
            try:  # noqa: SIM105 - one call more could be interrupted
                self._searching.release()
            except RuntimeError:  # another thread holds it
                pass


def _in_place(exchange: Callable[[], list[Any]], count: int) -> list[Any]:
    """Return the replies of a node, or its failure in place of each."""
    try:
        return exchange()
    except CacheUnavailable as error:
        return [error] * count
