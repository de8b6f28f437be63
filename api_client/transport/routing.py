"""Routing of commands without I/O, as plans that the sync and the async link carry out.

Plans (see `scripts`) yield the steps of an exchange with the nodes. `Routes` sends everything to one Redis, or to the
master that its Sentinels name; `cluster.Cluster` routes by slots.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from redis.exceptions import RedisError

from api_client.config.redis_url import Address
from api_client.errors import CacheUnavailable
from api_client.protocol.clock import RedisClock
from api_client.protocol.keys import CacheKey
from api_client.protocol.lease import Call
from api_client.transport.health import NodeHealth
from api_client.transport.scripts import none_failed
from api_client.transport.sentinel import MasterAddress
from api_client.transport.wire import Command

T = TypeVar("T")


class Send(NamedTuple):
    """Step: send commands, in one round trip per node and to all nodes at the same time.

    Send back the replies by node, or the CacheUnavailable of a failed node in place of each.
    """

    by_node: Mapping[Address, Sequence[Command]]


class Pause(NamedTuple):
    """Step: sleep."""

    duration_seconds: float


class FindSlots(NamedTuple):
    """Step: carry out a search, once for all concurrent callers. Send back its result, None if another is running.

    With ``waits`` the caller waits for the other search.
    """

    search: Callable[[], Plan[CacheUnavailable | None]]
    waits: bool


class SyncClock(NamedTuple):
    """Step: sync the clock of a node. Send back its CacheUnavailable, or None."""

    address: Address


Step: TypeAlias = "Send | Pause | FindSlots | SyncClock"
Plan: TypeAlias = Generator[Step, Any, T]


class Routes:
    """Nodes that commands go to, and their state; here a single node, which connections find by the URL.

    Shared by the sync and the async link. Thread-safe; no I/O. `Cluster` overrides every method but `results`.

    Args:
        url: the URL of one Redis, or of Sentinels.
        breaks: as for `NodeHealth`.

    Attributes:
        is_single: True if there is only one node.
        clock: the reader's clock.
        master: the master's address, behind Sentinels.
    """

    ONLY_NODE: ClassVar[Address] = ("", 0)
    is_single: ClassVar[bool] = True

    def __init__(self, url: str, *, breaks: bool = True) -> None:
        self._url, self._health = url, NodeHealth(breaks=breaks)
        self.clock: RedisClock = self._health.clock
        self.master: MasterAddress = MasterAddress()

    def url_of(self, node: Address) -> str:
        """Return the URL of a node."""
        return self._url

    def urls(self) -> list[str]:
        """Return the URLs of the known nodes that have keys."""
        return [self._url]

    def health_of(self, node: Address) -> NodeHealth:
        """Return the breaker and the clock of a node."""
        return self._health

    def health_of_owner(self, key: str) -> NodeHealth:
        """Return the health of the node that has a key."""
        return self._health

    def ready_owner(self, key: str) -> Address | None:
        """Return the node that has a key, or None if more must be known first."""
        return self.ONLY_NODE

    def to_reader_clock(self, raw: bytes | None, node: Address) -> bytes | None:
        """Return a node's entry with its times by the reader's clock."""
        return raw

    def on_nodes_changed(self, keep_only: Callable[[Collection[Address]], object]) -> None:
        """Register ``keep_only``, called with the nodes in use on whatever thread finds that they have changed."""

    def replies(self, commands: Sequence[Command], query: str | None = None) -> Plan[list[Any]]:
        """Run commands on the nodes that have their keys; return the replies.

        A reply may be an error reply, or the node's CacheUnavailable about ``query``.
        """
        return about_query((yield Send({self.ONLY_NODE: commands}))[self.ONLY_NODE], query)

    def entries(self, keys: Sequence[CacheKey]) -> Plan[Sequence[bytes | CacheUnavailable | None]]:
        """Read entries with times by the reader's clock; a node's failure takes the place of its entries.

        Raises:
            CacheUnavailable: a single node has failed.
        """
        replies = none_failed((yield from self.replies([("GET", key.entry) for key in keys], keys[0].query)))
        return [self._health.entry_of(reply, key.query) for key, reply in zip(keys, replies, strict=True)]

    def read_again(self, key: CacheKey, node: Address, failed: CacheUnavailable) -> Plan[bytes | None]:
        """Read an entry after a read at a node has failed: elsewhere, if that leads anywhere.

        Raises:
            CacheUnavailable: it does not.
        """
        yield from ()
        raise failed

    def sync_clocks(self, *, every: bool) -> Plan[None]:
        """Sync the clock of every node, or unless ``every`` of only one, when it is needed soon.

        Raises:
            CacheUnavailable: no node has answered.
        """
        if (failed := (yield SyncClock(self.ONLY_NODE))) is not None:
            raise failed

    def results(
        self, calls: Sequence[Call[T]], replies: Sequence[Any], query: str | None
    ) -> list[T | CacheUnavailable]:
        """Return the results of lease steps, with a failed one's error in its place."""
        return [self._result(call, reply, query) for call, reply in zip(calls, replies, strict=True)]

    def _result(self, call: Call[T], reply: Any, query: str | None) -> T | CacheUnavailable:
        if isinstance(reply, RedisError):
            return self.health_of_owner(call.keys[0]).failure(reply, query)
        return reply if isinstance(reply, CacheUnavailable) else call.parse(reply)


def about_query(replies: list[Any], query: str | None) -> list[Any]:
    """Return the replies, with their failures about ``query``."""
    if query is None:
        return replies
    return [reply.about(query) if isinstance(reply, CacheUnavailable) else reply for reply in replies]


class Node(Protocol):
    """The connections to one node."""

    def invalidate_connections(self) -> None:
        """Leave the node, from any thread: close its connections, those in use as soon as they are released."""

    def close(self) -> None:
        """Close the caller's connections."""


N = TypeVar("N", bound=Node)


class Nodes(Generic[N]):
    """The nodes used so far, each made at its first use. Thread-safe without a lock."""

    def __init__(self, make: Callable[[Address], N]) -> None:
        self._make = make
        self._made: dict[Address, N] = {}

    def __getitem__(self, address: Address) -> N:
        return self._made.get(address) or self._made.setdefault(address, self._make(address))

    def keep_only(self, kept: Collection[Address]) -> None:
        """Leave the nodes that are no longer in the cluster."""
        for address in [address for address in list(self._made) if address not in kept]:
            if (node := self._made.pop(address, None)) is not None:
                node.invalidate_connections()

    def invalidate_connections(self) -> None:
        """Leave all nodes; the next requests open connections."""
        for node in list(self._made.values()):
            node.invalidate_connections()

    def close(self) -> None:
        """Close the caller's connections to all nodes."""
        for node in list(self._made.values()):
            node.close()
