"""Origin of the cached value: counts its loads, outside of every strategy, in a Redis that no cache uses."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

import redis

from benchmarks.apparatus.entries import rows_of
from benchmarks.apparatus.loops import await_if_needed, pause, run_on_thread
from benchmarks.stampede.config import Config, pooled
from benchmarks.stampede.recorder import Mark, record

# Two steps away from one person, who is the best known one: what this project is meant for.
_CYPHER: Final = """
MATCH (p:Person {id: $id})-[:KNOWS]-(friend:Person)-[:KNOWS]-(other:Person)
RETURN other.name AS name, count(friend) AS mutual
ORDER BY mutual DESC, name LIMIT 10
"""
BEGUN: Final = b"b"


@dataclass(frozen=True, slots=True)
class Recompute:
    """One recompute. Monotonic seconds, which all processes of a machine share; ``ended`` None: it never did.

    ``at_once`` is how many ran just then, this one counted.
    """

    pid: int
    began: float
    ended: float | None
    at_once: int


def value_at(number: int, made_at: float, rows: Any) -> dict[str, Any]:
    """Return the value of a number as it is cached."""
    return {"number": number, "made_at": made_at, "rows": rows}


class Origin:
    """For one strategy, on threads or on an event loop, where what its methods return is to be awaited.

    Made in the process that uses it; what it connects to, it does at the first recompute.

    Args:
        config: of the scenario.
        name: that its counts are kept under.
        on_loop: whether tasks of an event loop use it.
    """

    def __init__(self, config: Config, name: str, *, on_loop: bool = False) -> None:
        self._config, self._name, self._on_loop = config, name, on_loop
        self._control: Any = None
        self._driver: Any = None
        self._closers: list[Callable[[], Any]] = []

    def compute(self, number: int, tx: Any = None) -> Any:
        """Make the value; a worker of this project passes the transaction that it has at hand."""
        coroutine = self._compute(number, tx)
        return coroutine if self._on_loop else run_on_thread(coroutine)

    def close(self) -> Any:
        return self._close() if self._on_loop else run_on_thread(self._close())

    async def _close(self) -> None:
        for close in self._closers:
            await await_if_needed(close())

    async def _compute(self, number: int, tx: Any) -> dict[str, Any]:
        record(Mark.COMPUTED)
        async with self._counted(number):
            rows = await self._rows(number, tx)
        return value_at(number, time.monotonic(), rows)

    @asynccontextmanager
    async def _counted(self, number: int) -> AsyncIterator[None]:
        if self._control is None:
            self._control = pooled(self._config.servers.control_url, on_loop=self._on_loop)
            self._closers.append(self._control.aclose if self._on_loop else self._control.close)
        key, run = ledger_key(self._name, number), f"{os.getpid()} {os.urandom(6).hex()}"
        begin = self._control.pipeline().incr(f"{key}:running").rpush(key, f"b {run} {time.monotonic()!r}")
        at_once = (await await_if_needed(begin.execute()))[0]
        try:
            yield
        finally:
            end = self._control.pipeline().decr(f"{key}:running")
            await await_if_needed(end.rpush(key, f"e {run} {time.monotonic()!r} {at_once}").execute())

    async def _rows(self, number: int, tx: Any) -> Any:
        graph = self._config.graph
        if graph is None:
            await pause(self._config.delta_seconds, on_loop=self._on_loop)
            return rows_of(number)
        if tx is not None:
            return tx.run(_CYPHER, id=graph.person_id).data()
        if self._driver is None:
            import neo4j

            of = neo4j.AsyncGraphDatabase if self._on_loop else neo4j.GraphDatabase
            self._driver = of.driver(graph.uri, auth=(graph.user, graph.password))
            self._closers.append(self._driver.close)
        found = await await_if_needed(
            self._driver.execute_query(_CYPHER, id=graph.person_id, database_=graph.database, routing_="r")
        )
        return [row.data() for row in found.records]


def ledger_key(name: str, number: int) -> str:
    """Return the name under which the recomputes of a strategy's number are kept."""
    return f"stampede:{name}:{number}"


class Ledger:
    """The other side: what the origin has counted for one strategy and number."""

    def __init__(self, control: redis.Redis, name: str, number: int) -> None:
        self._control, self._key = control, ledger_key(name, number)

    @property
    def running(self) -> int:
        return int(cast("Any", self._control.get(f"{self._key}:running")) or 0)

    def recomputes(self) -> list[Recompute]:
        """Return all of them so far, by their beginning."""
        return parsed(cast("list[bytes]", self._control.lrange(self._key, 0, -1)))

    def reset(self) -> None:
        """Begin anew: what has been counted so far was to prepare."""
        self._control.delete(self._key)

    def remove_killed(self) -> None:
        """One that ran was killed, and can't count itself out."""
        self._control.decr(f"{self._key}:running")


def parsed(lines: list[bytes]) -> list[Recompute]:
    """Read what recomputes have left, one line at their beginning and one at their end."""
    begun: dict[bytes, tuple[int, float]] = {}
    ended: dict[bytes, tuple[float, int]] = {}
    for line in lines:
        kind, pid, run, at, *rest = line.split()
        if kind == BEGUN:
            begun[run] = int(pid), float(at)
        else:
            ended[run] = float(at), int(rest[0])
    found = [
        Recompute(pid, began, ended[run][0] if run in ended else None, ended[run][1] if run in ended else 1)
        for run, (pid, began) in begun.items()
    ]
    return sorted(found, key=lambda recompute: recompute.began)
