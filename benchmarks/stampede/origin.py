"""Origin of the cached value, which counts its loads outside of all strategies, in a Redis that no cache uses."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, cast

import redis

from benchmarks.apparatus.entries import rows_of
from benchmarks.apparatus.loops import await_if_needed, pause, run_on_thread
from benchmarks.stampede.config import Config, pooled
from benchmarks.stampede.recorder import Mark, record


@dataclass(frozen=True, slots=True)
class Recompute:
    """One recompute, in monotonic seconds, which all processes of a machine share; ``ended`` is None if it never did.

    ``at_once`` is the number of recomputes at that time, including this one.
    """

    pid: int
    began: float
    ended: float | None = None
    at_once: int = 1


def value_of(number: int) -> dict[str, Any]:
    """Return the value of a number to cache, made now (monotonic seconds)."""
    return {"number": number, "made_at": time.monotonic(), "rows": rows_of(number)}


class Origin:
    """Origin for one strategy, on threads or on an event loop, where its methods return awaitables.

    Args:
        config: the configuration of the scenario.
        name: the name of its counts.
        on_loop: True if tasks of an event loop use it.
    """

    def __init__(self, config: Config, name: str, *, on_loop: bool = False) -> None:
        self._delta_seconds, self._name, self._on_loop = config.delta_seconds, name, on_loop
        self._control = pooled(config.servers.control_url, on_loop=on_loop)

    def compute(self, number: int) -> Any:
        coroutine = self._compute(number)
        return coroutine if self._on_loop else run_on_thread(coroutine)

    def close(self) -> Any:
        return self._control.aclose() if self._on_loop else self._control.close()

    async def _compute(self, number: int) -> dict[str, Any]:
        record(Mark.COMPUTED)
        key, run = _ledger_key(self._name, number), f"{os.getpid()} {os.urandom(6).hex()}"
        begin = self._control.pipeline().incr(f"{key}:running").rpush(key, f"b {run} {time.monotonic()!r}")
        at_once = (await await_if_needed(begin.execute()))[0]
        try:
            await pause(self._delta_seconds, on_loop=self._on_loop)
        finally:
            end = self._control.pipeline().decr(f"{key}:running")
            await await_if_needed(end.rpush(key, f"e {run} {time.monotonic()!r} {at_once}").execute())
        return value_of(number)


def _ledger_key(name: str, number: int) -> str:
    return f"stampede:{name}:{number}"


class Ledger:
    """The origin's counts for one strategy and number."""

    def __init__(self, control: redis.Redis, name: str, number: int) -> None:
        self._control, self._key = control, _ledger_key(name, number)

    @property
    def running(self) -> int:
        return int(cast("Any", self._control.get(f"{self._key}:running")) or 0)

    def recomputes(self) -> list[Recompute]:
        found: dict[bytes, Recompute] = {}
        for line in cast("list[bytes]", self._control.lrange(self._key, 0, -1)):
            kind, pid, run, at, *at_once = line.split()
            if kind == b"b":
                found[run] = Recompute(int(pid), float(at))
            elif run in found:
                found[run] = Recompute(int(pid), found[run].began, float(at), int(at_once[0]))
        return sorted(found.values(), key=attrgetter("began"))

    def reset(self) -> None:
        """Start anew, since the counts so far belong to the preparation."""
        self._control.delete(self._key)

    def remove_killed(self) -> None:
        """Subtract a recompute that was killed while it ran."""
        self._control.decr(f"{self._key}:running")
