"""How commands reach Redis and replies come back: over thin connections, or by a client of redis-py."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import redis
from redis.exceptions import RedisError

from api_client.cluster_client import LazyCluster, node_of
from api_client.connections import Connections
from api_client.error_replies import unwrapped
from api_client.redis_edge import ConnectionMaker
from api_client.wire import Command, pack, pack_all


class Way(ABC):
    """A way to Redis. Thread-safe; what it raises are errors of redis-py, or of the socket."""

    @abstractmethod
    def ask(self, command: Command) -> Any:
        """Send one command and return its reply; an error reply is raised."""

    @abstractmethod
    def ask_all(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one round trip, on one connection; an error reply is returned as an exception."""

    def to(self, key: str) -> Way:
        """Return the way to the node that has a key's slot; the same one where there is but one node."""
        return self


class ThinWay(Way):
    """Over thin connections to one node: half of what redis-py's pool and command layer cost.

    Behind Sentinels that is whoever is the master; they are asked once a second, for nothing on a good connection tells
    that it leads to one no more.

    Args:
        make: makes the connections.
        connections: the pool of them.
    """

    def __init__(self, make: ConnectionMaker, connections: Connections) -> None:
        self._make, self._connections = make, connections

    def ask(self, command: Command) -> Any:
        """Send one command and return its reply."""
        self._make.look()
        reply = self._connections.ask(pack(*command))
        if isinstance(reply, RedisError):
            raise reply
        return reply

    def ask_all(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands with one write."""
        self._make.look()
        return self._connections.begin(pack_all(commands), len(commands))()


@dataclass(frozen=True, slots=True)
class RedisPyWay(Way):
    """By a client as `redis_edge.connect` makes it, also of a cluster, where each command goes by its key."""

    client: redis.Redis

    def ask(self, command: Command) -> Any:
        """Send one command and return its reply."""
        try:
            return self.client.execute_command(*command)  # type: ignore[no-untyped-call]
        except RedisError as error:
            told = unwrapped(error)
            if told is error:
                raise
            raise told from error

    def ask_all(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in a pipeline; not on a whole cluster."""
        with self.client.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)  # type: ignore[no-untyped-call]
            replies = pipeline.execute(raise_on_error=False)
        return [unwrapped(reply) if isinstance(reply, RedisError) else reply for reply in replies]

    def to(self, key: str) -> Way:
        """Return the way to the node that has a key's slot.

        Raises:
            redis.exceptions.ConnectionError: no node of the cluster answers, or none has it.
        """
        return RedisPyWay(node_of(self.client, key)) if isinstance(self.client, LazyCluster) else self
