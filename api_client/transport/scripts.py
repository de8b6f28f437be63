"""Steps of lease records as commands, and plans: exchanges with Redis as generators that do no I/O.

A plan yields steps and is sent their results; `drive` and `adrive` carry it out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Generator, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import redis
from redis.exceptions import NoScriptError, RedisError

from api_client.errors import CacheError, CacheUnavailable
from api_client.protocol.lease import Call
from api_client.transport.wire import Command, unwrapped

S = TypeVar("S")
R = TypeVar("R")
T = TypeVar("T")

_FOLDER: Final = files("api_client.protocol") / "lua"
SCRIPTS: Final = tuple(sorted({file.name.removesuffix(".lua") for file in _FOLDER.iterdir()} - {"prelude"}))
"""The names of all scripts."""


def drive(plan: Generator[S, R, T], do: Callable[[S], R]) -> T:
    """Carry out a plan, with ``do`` for each step. An exception from ``do`` ends the plan at once."""
    try:
        step = next(plan)
        while True:
            step = plan.send(do(step))
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        plan.close()


async def adrive(plan: Generator[S, R, T], do: Callable[[S], Awaitable[R]]) -> T:
    """Carry out a plan as `drive` does, awaiting each step."""
    try:
        step = next(plan)
        while True:
            step = plan.send(await do(step))
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        plan.close()


ScriptPlan: TypeAlias = Generator[Sequence[Command], Sequence[Any], list[Any]]


def script_plan(calls: Sequence[Call[Any]]) -> ScriptPlan:
    """Run steps: yield the commands of one round trip, and of a second one if Redis has forgotten scripts.

    The plan is sent their replies, and returns one for each call; an error takes the place of its reply.
    """
    replies = list((yield [by_hash(call) for call in calls]))
    forgotten = [place for place, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
    if forgotten:
        anew = yield [by_text(calls[place]) for place in forgotten]
        for place, reply in zip(forgotten, anew, strict=True):
            replies[place] = reply
    return replies


def by_hash(call: Call[Any]) -> Command:
    """Return the command that runs a step whose script Redis knows."""
    return ("EVALSHA", sha_of(call.script), len(call.keys), *call.keys, *call.args)


def by_text(call: Call[Any]) -> Command:
    """Return the command that runs a step with its script's text, which Redis remembers.

    A single command, because another client's SCRIPT FLUSH could come between SCRIPT LOAD and EVALSHA.
    """
    return ("EVAL", source(call.script), len(call.keys), *call.keys, *call.args)


def by_text_and_wait(call: Call[Any], *, replicas: int, timeout_seconds: float) -> list[Command]:
    """Return the commands that run a step, and query on the same connection how many replicas have it."""
    return [by_text(call), ("WAIT", replicas, max(1, round(timeout_seconds * 1_000)))]


def read_scripts() -> None:
    """Read all scripts now.

    Reading them imports, and in the middle of a call a signal handler's exception could leave CPython's import lock
    held.
    """
    for name in SCRIPTS:
        sha_of(name)


@cache
def sha_of(name: str) -> str:
    """Return the SHA-1 by which Redis knows a script."""
    return hashlib.sha1(source(name).encode(), usedforsecurity=False).hexdigest()


@cache
def source(name: str) -> str:
    """Return a script's whole text: the prelude, then its own file."""
    return "\n".join((_FOLDER / f"{part}.lua").read_text(encoding="utf-8") for part in ("prelude", name))


def none_failed(results: Sequence[T | CacheError]) -> list[T]:
    """Return the results of a round trip; raise the first error among them."""
    for result in results:
        if isinstance(result, CacheError):
            raise result
    return [result for result in results if not isinstance(result, CacheError)]


def all_answered(plan: Generator[S, Sequence[Any], T]) -> Generator[S, Sequence[Any], T]:
    """Continue a plan while every call is answered; raise the first error among the replies."""
    try:
        step = next(plan)
        while True:
            step = plan.send(none_failed((yield step)))
    except StopIteration as done:
        result: T = done.value
        return result


Until: TypeAlias = Callable[[Sequence[bool]], bool]
"""Decides, from which steps were answered, whether the others are given up: `all`, `any`, `at_once`."""


def at_once(_answered: Sequence[bool]) -> bool:
    """Give up unanswered steps at once."""
    return True


class LeaseStepRunner(Protocol):
    """Runs steps of lease records."""

    def run(self, call: Call[T], /) -> T:
        """Run one step."""

    def run_each(self, calls: Sequence[Call[T]], /, *, until: Until = all) -> Sequence[T | CacheUnavailable]:
        """Run steps in one round trip; a failed one does not end the others.

        A worker's runner sends them again for some seconds, ``until`` enough are answered.
        """


class LeaseStore:
    """Steps over a client of redis-py, even one of a cluster, for tools that have one for other commands anyway.

    Errors of redis-py pass through. Readers and workers run steps over links instead.
    """

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def run(self, call: Call[T]) -> T:
        """Run one step."""
        return self.run_all([call])[0]

    def run_all(self, calls: Sequence[Call[T]]) -> list[T]:
        """Run steps one after another, and raise the first error after the last step."""
        replies = drive(script_plan(calls), lambda commands: ask_by_redis_py(self._client, commands))
        for reply in replies:
            if isinstance(reply, RedisError):
                raise reply
        return [call.parse(reply) for call, reply in zip(calls, replies, strict=True)]


def ask_by_redis_py(client: redis.Redis, commands: Sequence[Command]) -> list[Any]:
    """Send commands one by one, each by its key; an error reply is returned as an exception.

    Raises:
        redis.exceptions.RedisError: there was no connection, or no reply on it.
    """
    replies: list[Any] = []
    for command in commands:
        try:
            replies.append(client.execute_command(*command))  # type: ignore[no-untyped-call]
        except redis.ResponseError as error:
            replies.append(unwrapped(error))
    return replies
