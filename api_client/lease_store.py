"""Runs the steps of the lease record on Redis: each is one script, loaded once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any, Final, TypeVar

import redis
from redis.exceptions import NoScriptError, RedisError

from api_client.cluster_client import LazyCluster, node_of
from api_client.lease import Call
from api_client.wire import Command, is_wrong_node, pack

T = TypeVar("T")

SCRIPTS: Final = (
    "acquire",
    "claim",
    "commit",
    "fail",
    "hand_back",
    "invalidate",
    "release",
    "renew",
    "republish",
    "retry",
    "unclaim",
)


class LeaseStore:
    """Runs the steps on a Redis client. Errors of redis-py pass through; its callers translate them.

    Args:
        client: whose connections are used; as `redis_edge.connect` makes it.
        ask: sends single steps in its place, at less cost: takes a packed command, returns the reply, and raises
            redis-py's errors. Not on a cluster.
        on_read_only: called when a step was refused because the node is a master no longer.
    """

    def __init__(
        self,
        client: redis.Redis,
        *,
        ask: Callable[[bytes], Any] | None = None,
        on_read_only: Callable[[], None] = lambda: None,
    ) -> None:
        self._client, self._ask, self._on_read_only = client, ask, on_read_only

    def run(self, call: Call[T]) -> T:
        """Run one step. A script that Redis has forgotten is loaded again."""
        with self._leaving():
            return call.parse(self._reply(call))

    def run_all(self, calls: Sequence[Call[T]]) -> list[T]:
        """Run steps in one round trip (two when Redis has forgotten a script); of a cluster in one for each node."""
        if len(calls) == 1:
            return [self.run(calls[0])]  # half of what a pipeline costs here
        places_of: dict[redis.Redis, list[int]] = {}
        with self._leaving():
            for place, call in enumerate(calls):
                places_of.setdefault(node_of(self._client, call.keys[0]), []).append(place)
            replies: dict[int, Any] = {}
            for node, places in places_of.items():
                replies.update(zip(places, self._replies(node, [calls[place] for place in places]), strict=True))
        return [call.parse(replies[place]) for place, call in enumerate(calls)]

    def run_and_wait(self, call: Call[T], *, replicas: int, timeout_seconds: float) -> tuple[T, int]:
        """Run one step, then ask the same connection how many replicas have it (WAIT): the reply and their number."""
        with self._leaving():
            node = node_of(self._client, call.keys[0])
            node.script_load(source(call.script))
            with node.pipeline(transaction=False) as pipeline:
                pipeline.evalsha(*_evalsha(call))
                pipeline.wait(replicas, max(1, round(timeout_seconds * 1_000)))
                reply, acknowledged = pipeline.execute()
        return call.parse(reply), int(acknowledged)

    def _reply(self, call: Call[Any]) -> Any:
        try:
            return self._reply_by_hash(call)
        except NoScriptError:
            node_of(self._client, call.keys[0]).script_load(source(call.script))
            return self._reply_by_hash(call)

    def _reply_by_hash(self, call: Call[Any]) -> Any:
        if self._ask is None:
            return self._client.evalsha(*_evalsha(call))
        return self._ask(pack(*by_hash(call)))

    def _replies(self, node: redis.Redis, calls: Sequence[Call[Any]]) -> list[Any]:
        try:
            try:
                return self._pipelined(node, calls)
            except NoScriptError:
                for name in {call.script for call in calls}:
                    node.script_load(source(name))
                return self._pipelined(node, calls)
        except RedisError:
            if node is self._client:
                raise
            # Another node may have the slots now: redis-py finds it. What was done already may be repeated.
            return [self._reply(call) for call in calls]

    @staticmethod
    def _pipelined(node: redis.Redis, calls: Sequence[Call[Any]]) -> list[Any]:
        with node.pipeline(transaction=False) as pipeline:
            for call in calls:
                pipeline.evalsha(*_evalsha(call))
            return list(pipeline.execute())

    @contextmanager
    def _leaving(self) -> Iterator[None]:
        try:
            yield
        except RedisError as error:
            # Of a cluster redis-py's client sees to that itself.
            if is_wrong_node(error) and not isinstance(self._client, LazyCluster):
                self._on_read_only()
            raise


def by_hash(call: Call[Any]) -> Command:
    """Return the command that runs a step whose script Redis knows."""
    return ("EVALSHA", _sha(call.script), len(call.keys), *call.keys, *call.args)


def _evalsha(call: Call[Any]) -> tuple[Any, ...]:
    return by_hash(call)[1:]


@cache
def _sha(name: str) -> str:
    return hashlib.sha1(source(name).encode(), usedforsecurity=False).hexdigest()


@cache
def source(name: str) -> str:
    """Return a script's whole text: the prelude, then its own file."""
    folder = files("api_client") / "lua"
    return "\n".join((folder / f"{part}.lua").read_text(encoding="utf-8") for part in ("prelude", name))
