"""redis-py's client of a cluster, made at its first use: making one asks the nodes for their slots."""

from __future__ import annotations

import threading
from typing import Any, Self

import redis
from redis import ConnectionPool, RedisCluster
from redis.cluster import PRIMARY, ClusterNode
from redis.exceptions import (
    AuthenticationError,
    ConnectionError,
    RedisClusterException,
    RedisError,
    ResponseError,
)
from redis.retry import Retry

from api_client.redis_url import RedisUrl
from api_client.wire import pack_bytes_only


class _NodePool(ConnectionPool):
    """The pool of one node: redis-py's cluster passes no packer on to its connections."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        pack_bytes_only(self)


class LazyCluster:
    """A `RedisCluster` that asks nobody before it is used. Thread-safe.

    Args:
        url: the nodes to ask first, and the options of the connections to all.
        options: of the sockets.
        retry: what to try again of a command, and how; the slots are asked for anew before each try.
    """

    def __init__(self, url: RedisUrl, options: dict[str, Any], retry: Retry) -> None:
        # redis-py reads the URL as it does for one node.
        read = ConnectionPool.from_url(url.node_url).connection_kwargs
        self._options = {name: value for name, value in read.items() if name not in {"host", "port", "db"}}
        self._options |= {**options, "ssl": url.uses_tls, "retry": retry}
        self._options["connection_pool_class"] = _NodePool
        self._members = url.members
        self._lock = threading.RLock()
        self._made: RedisCluster | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster(), name)

    def node(self, key: str) -> Any:
        """Return a client of the one node that has a key's slot.

        Raises:
            redis.exceptions.ConnectionError: no node answers, or none has it.
            redis.exceptions.ResponseError: a node refuses to tell which.
        """
        cluster: Any = self._cluster()
        try:
            return cluster.get_redis_connection(cluster.get_node_from_key(key))
        except RedisClusterException as error:
            raise ConnectionError(str(error)) from error

    def close(self) -> None:
        """Close the connections; it may be used again."""
        with self._lock:
            made, self._made = self._made, None
        if made is not None:
            made.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _cluster(self) -> RedisCluster:
        made = self._made
        if made is None:
            with self._lock:
                made = self._made
                if made is None:
                    nodes = [ClusterNode(*member) for member in self._members]  # type: ignore[no-untyped-call]
                    try:
                        made = self._made = _Cluster(startup_nodes=nodes, **self._options)
                    except RedisClusterException as error:  # no error of redis-py's usual ones
                        raise _refusal(error) or ConnectionError(str(error)) from error
        return made


class _Cluster(RedisCluster):
    """redis-py's client, which also follows ASK to a node that has no slot yet: to itself that one is unknown."""

    def get_node(self, host: Any = None, port: Any = None, node_name: Any = None) -> Any:
        """Return a node by its name; one that is not known yet is known from then on."""
        found = super().get_node(host, port, node_name)  # type: ignore[no-untyped-call]
        if found is None and node_name:
            new_host, _, new_port = str(node_name).rpartition(":")
            new = ClusterNode(new_host, int(new_port), PRIMARY)  # type: ignore[no-untyped-call]
            found = self.nodes_manager.nodes_cache.setdefault(new.name, new)
        return found


def _refusal(error: BaseException) -> RedisError | None:
    """Return what a node has answered; redis-py calls every refusal a node that is in no cluster."""
    told: BaseException | None = error
    while told is not None:
        if isinstance(told, ResponseError | AuthenticationError):
            return told
        told = told.__cause__ or told.__context__
    return None


def node_of(client: redis.Redis, key: str) -> redis.Redis:
    """Return the client for commands that go together with a key's: of a cluster its node's own, else the same.

    Raises:
        redis.exceptions.ConnectionError: no node of the cluster answers, or none has the key's slot.
    """
    if isinstance(client, LazyCluster):
        node: redis.Redis = client.node(key)
        return node
    return client
