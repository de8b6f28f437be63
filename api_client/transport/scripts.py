"""Runs the steps of the lease record on Redis: each is one script, loaded once."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, Protocol, TypeVar

import redis
from redis.exceptions import NoScriptError, RedisError, ResponseError

from api_client.protocol.lease import Call
from api_client.transport.error_replies import is_wrong_node, unwrapped
from api_client.transport.pool import Connections
from api_client.transport.redis_py import ConnectionMaker, LazyCluster, node_of
from api_client.transport.wire import Command, pack, pack_all


class CommandExecutor(ABC):
    """A way to Redis. Thread-safe; what it raises are errors of redis-py, or of the socket."""

    @abstractmethod
    def ask(self, command: Command) -> Any:
        """Send one command and return its reply; an error reply is raised."""

    @abstractmethod
    def ask_all(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one round trip, on one connection; an error reply is returned as an exception."""

    def to(self, key: str) -> CommandExecutor:
        """Return the way to the node that has a key's slot; the same one where there is but one node."""
        return self


class PooledExecutor(CommandExecutor):
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
class RedisPyExecutor(CommandExecutor):
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

    def to(self, key: str) -> CommandExecutor:
        """Return the way to the node that has a key's slot.

        Raises:
            redis.exceptions.ConnectionError: no node of the cluster answers, or none has it.
        """
        return RedisPyExecutor(node_of(self.client, key)) if isinstance(self.client, LazyCluster) else self


T = TypeVar("T")

STEPS: Final = (
    "acquire",
    "claim",
    "commit",
    "fail",
    "hand_back",
    "invalidate",
    "renew",
    "republish",
    "retry",
    "unclaim",
)
"""The steps of the lease record."""

SCRIPTS: Final = tuple(sorted((*STEPS, "register", "versions")))
"""The steps, and what keeps the live versions of a query (`live_versions`)."""


class LeaseStore:
    """Runs the steps. Errors of redis-py pass through; its callers translate them.

    Args:
        way: how they reach Redis; or a client, as `redis_edge.connect` makes it.
        on_read_only: called when a step was refused because the node is a master no longer. Of a cluster redis-py's
            client sees to that itself.
    """

    def __init__(self, way: CommandExecutor | redis.Redis, *, on_read_only: Callable[[], None] = lambda: None) -> None:
        self._way = way if isinstance(way, CommandExecutor) else RedisPyExecutor(way)
        self._on_read_only = on_read_only

    def run(self, call: Call[T]) -> T:
        """Run one step; one whose script Redis has forgotten is sent again, with the script."""
        try:
            return call.parse(self._reply(call))
        except RedisError as error:
            self._look_at(error)
            raise

    def run_all(self, calls: Sequence[Call[T]]) -> list[T]:
        """Run steps in one round trip (two when Redis has forgotten a script); of a cluster in one for each node."""
        if len(calls) == 1:
            return [self.run(calls[0])]  # half of what a batch costs here
        replies = _none_refused(self.replies(calls))
        return [call.parse(reply) for call, reply in zip(calls, replies, strict=True)]

    def replies(self, calls: Sequence[Call[Any]]) -> list[Any]:
        """Run steps as `run_all`, and return what Redis says to each: a refusal is an exception in its place."""
        places_of: dict[CommandExecutor, list[int]] = {}
        try:
            for place, call in enumerate(calls):
                places_of.setdefault(self._way.to(call.keys[0]), []).append(place)
            replies: dict[int, Any] = {}
            for way, places in places_of.items():
                replies.update(zip(places, self._replies(way, [calls[place] for place in places]), strict=True))
        except RedisError as error:
            self._look_at(error)
            raise
        for reply in replies.values():
            self._look_at(reply)
        return [replies[place] for place in range(len(calls))]

    def run_and_wait(self, call: Call[T], *, replicas: int, timeout_seconds: float) -> tuple[T, int]:
        """Run one step, then ask the same connection how many replicas have it (WAIT): the reply and their number."""
        wait_ms = max(1, round(timeout_seconds * 1_000))
        try:
            reply, acknowledged = _none_refused(
                self._way.to(call.keys[0]).ask_all([by_text(call), ("WAIT", replicas, wait_ms)])
            )
        except RedisError as error:
            self._look_at(error)
            raise
        return call.parse(reply), int(acknowledged)

    def _reply(self, call: Call[Any]) -> Any:
        try:
            return self._way.ask(by_hash(call))
        except NoScriptError:
            return self._way.ask(by_text(call))

    def _replies(self, way: CommandExecutor, calls: Sequence[Call[Any]]) -> list[Any]:
        if way is self._way:
            return _replies_of_node(way, calls)
        try:
            return _none_refused(_replies_of_node(way, calls))
        except RedisError:
            # Another node may have the slots now: redis-py finds it. What was done already may be repeated.
            return [self._reply(call) for call in calls]

    def _look_at(self, reply: object) -> None:
        if is_wrong_node(reply):
            self._on_read_only()


def _replies_of_node(way: CommandExecutor, calls: Sequence[Call[Any]]) -> list[Any]:
    replies = way.ask_all([by_hash(call) for call in calls])
    unknown = [place for place, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
    if unknown:
        for place, reply in zip(unknown, way.ask_all([by_text(calls[place]) for place in unknown]), strict=True):
            replies[place] = reply
    return replies


def _none_refused(replies: list[Any]) -> list[Any]:
    for reply in replies:
        if isinstance(reply, RedisError):
            raise reply
    return replies


def by_hash(call: Call[Any]) -> Command:
    """Return the command that runs a step whose script Redis knows."""
    return ("EVALSHA", _sha(call.script), len(call.keys), *call.keys, *call.args)


def by_text(call: Call[Any]) -> Command:
    """Return the command that runs a step with its script's text, which Redis knows from then on.

    One command: between SCRIPT LOAD and EVALSHA another client's SCRIPT FLUSH can make Redis forget the script again.
    """
    return ("EVAL", source(call.script), len(call.keys), *call.keys, *call.args)


def read_scripts() -> None:
    """Read all scripts now.

    That imports. In the middle of a call an exception from a signal handler could leave CPython's lock of imports held.
    """
    for name in SCRIPTS:
        _sha(name)


@cache
def _sha(name: str) -> str:
    return hashlib.sha1(source(name).encode(), usedforsecurity=False).hexdigest()


@cache
def source(name: str) -> str:
    """Return a script's whole text: the prelude, then its own file."""
    folder = files("api_client.protocol") / "lua"
    return "\n".join((folder / f"{part}.lua").read_text(encoding="utf-8") for part in ("prelude", name))


class Steps(Protocol):
    """Runs steps of lease records."""

    def run(self, call: Call[T], /) -> T: ...  # noqa: D102

    def run_all(self, calls: Sequence[Call[T]], /) -> list[T]:
        """Run steps in one round trip; raises a ResponseError when one of them met one."""


def run_each(store: Steps, calls: Sequence[Call[T]]) -> list[T | Exception]:
    """Run steps in one round trip; one that Redis refuses ends alone."""
    replies: list[T | Exception] = []
    try:
        replies.extend(store.run_all(calls) if calls else ())
    except ResponseError:
        replies.extend(_alone(store, calls))
    except Exception as error:  # noqa: BLE001 - told to whoever asked for each of them
        replies.extend([error] * len(calls))
    return replies


def _alone(store: Steps, calls: Sequence[Call[T]]) -> Iterator[T | Exception]:
    """Run steps one by one. Some may have been done already: each may be repeated."""
    for call in calls:
        try:
            yield store.run(call)
        except Exception as error:  # noqa: BLE001 - told to whoever asked for it
            yield error
