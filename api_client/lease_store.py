"""Runs the steps of the lease record on Redis: each is one script, loaded once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any, Final, TypeVar

import redis
from redis.exceptions import NoScriptError, RedisError

from api_client.lease import Call
from api_client.wire import Command, is_wrong_node

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
        client: whose connections are used.
        on_wrong_node: called when a step was refused because the node is a master no longer.
    """

    def __init__(self, client: redis.Redis, *, on_wrong_node: Callable[[], None] = lambda: None) -> None:
        self._client, self._on_wrong_node = client, on_wrong_node
        self._scripts = {name: client.register_script(source(name)) for name in SCRIPTS}

    def run(self, call: Call[T]) -> T:
        """Run one step. A script that Redis has forgotten is loaded again."""
        with self._leaving():
            return call.parse(self._scripts[call.script](keys=call.keys, args=call.args))

    def run_all(self, calls: Sequence[Call[T]]) -> list[T]:
        """Run steps in one round trip (two when Redis has forgotten a script)."""
        try:
            replies = self._pipelined(calls)
        except NoScriptError:
            for name in {call.script for call in calls}:
                self._client.script_load(source(name))
            replies = self._pipelined(calls)
        return [call.parse(reply) for call, reply in zip(calls, replies, strict=True)]

    def run_and_wait(self, call: Call[T], *, replicas: int, timeout_seconds: float) -> tuple[T, int]:
        """Run one step, then ask the same connection how many replicas have it (WAIT): the reply and their number."""
        script = self._scripts[call.script]
        self._client.script_load(script.script)
        with self._leaving(), self._client.pipeline(transaction=False) as pipeline:
            pipeline.evalsha(script.sha, len(call.keys), *call.keys, *call.args)
            pipeline.wait(replicas, max(1, round(timeout_seconds * 1_000)))
            reply, acknowledged = pipeline.execute()
        return call.parse(reply), int(acknowledged)

    def _pipelined(self, calls: Iterable[Call[T]]) -> list[Any]:
        with self._client.pipeline(transaction=False) as pipeline:
            for call in calls:
                pipeline.evalsha(self._scripts[call.script].sha, len(call.keys), *call.keys, *call.args)
            with self._leaving():
                return list(pipeline.execute())

    @contextmanager
    def _leaving(self) -> Iterator[None]:
        try:
            yield
        except RedisError as error:
            if is_wrong_node(error):
                self._on_wrong_node()
            raise


def by_hash(call: Call[Any]) -> Command:
    """Return the command that runs a step whose script Redis knows."""
    return ("EVALSHA", _sha(call.script), len(call.keys), *call.keys, *call.args)


def by_source(call: Call[Any]) -> Command:
    """Return the command that runs a step and lets Redis know its script."""
    return ("EVAL", source(call.script), len(call.keys), *call.keys, *call.args)


@cache
def _sha(name: str) -> str:
    return hashlib.sha1(source(name).encode(), usedforsecurity=False).hexdigest()


@cache
def source(name: str) -> str:
    """Return a script's whole text: the prelude, then its own file."""
    folder = files("api_client") / "lua"
    return "\n".join((folder / f"{part}.lua").read_text(encoding="utf-8") for part in ("prelude", name))
