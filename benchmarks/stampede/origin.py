"""Origin of the cached value: counts its loads, outside of every strategy, in a Redis that no cache uses."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import redis
import redis.asyncio

from benchmarks.apparatus.entries import PayloadKind, value_of
from benchmarks.stampede.config import Config, async_pooled, pooled
from benchmarks.stampede.recorder import Mark, record

if TYPE_CHECKING:
    from neo4j import AsyncDriver, Driver

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
    """For one strategy: on threads `compute`, on an event loop `acompute`. ``name`` is what its counts are kept under.

    Made in the process that uses it; what it connects to, it does at the first recompute.
    """

    def __init__(self, config: Config, name: str) -> None:
        self._config, self._name = config, name
        self._sync: redis.Redis | None = None
        self._async: redis.asyncio.Redis | None = None
        self._driver: Driver | None = None
        self._async_driver: AsyncDriver | None = None

    def compute(self, number: int) -> dict[str, Any]:
        record(Mark.COMPUTED)
        with self._counted(number):
            rows = self._rows(number)
        return value_at(number, time.monotonic(), rows)

    def compute_in(self, tx: Any, number: int) -> dict[str, Any]:
        """Make it in a transaction of a worker of this project, which has the graph at hand."""
        with self._counted(number):
            rows = self._pause(number) if self._config.graph is None else self._ask(tx)
        return value_at(number, time.monotonic(), rows)

    async def acompute(self, number: int) -> dict[str, Any]:
        record(Mark.COMPUTED)
        async with self._acounted(number):
            rows = await self._arows(number)
        return value_at(number, time.monotonic(), rows)

    def close(self) -> None:
        if self._sync is not None:
            self._sync.close()
        if self._driver is not None:
            self._driver.close()

    async def aclose(self) -> None:
        """Disconnect what the event loop used."""
        if self._async is not None:
            await self._async.aclose()
        if self._async_driver is not None:
            await self._async_driver.close()

    @contextmanager
    def _counted(self, number: int) -> Iterator[None]:
        key, run, control = ledger_key(self._name, number), _new_run(), self._control()
        at_once = _begin(control.pipeline(), key, run).execute()[0]
        try:
            yield
        finally:
            _end(control.pipeline(), key, run, at_once).execute()

    @asynccontextmanager
    async def _acounted(self, number: int) -> AsyncIterator[None]:
        key, run, control = ledger_key(self._name, number), _new_run(), self._acontrol()
        at_once = (await _begin(control.pipeline(), key, run).execute())[0]
        try:
            yield
        finally:
            await _end(control.pipeline(), key, run, at_once).execute()

    def _control(self) -> redis.Redis:
        if self._sync is None:
            self._sync = pooled(self._config.servers.control_url)
        return self._sync

    def _acontrol(self) -> redis.asyncio.Redis:
        if self._async is None:
            self._async = async_pooled(self._config.servers.control_url)
        return self._async

    def _pause(self, number: int) -> Any:
        time.sleep(self._config.delta_seconds)
        return value_of(PayloadKind.ROWS)(number)

    def _rows(self, number: int) -> Any:
        graph = self._config.graph
        if graph is None:
            return self._pause(number)
        if self._driver is None:
            from neo4j import GraphDatabase

            self._driver = GraphDatabase.driver(graph.uri, auth=(graph.user, graph.password))
        with self._driver.session(database=graph.database) as session:
            return session.execute_read(self._ask)

    async def _arows(self, number: int) -> Any:
        graph = self._config.graph
        if graph is None:
            await asyncio.sleep(self._config.delta_seconds)
            return value_of(PayloadKind.ROWS)(number)
        if self._async_driver is None:
            from neo4j import AsyncGraphDatabase

            self._async_driver = AsyncGraphDatabase.driver(graph.uri, auth=(graph.user, graph.password))

        async def ask(tx: Any) -> Any:
            return await (await tx.run(_CYPHER, id=graph.person_id)).data()

        async with self._async_driver.session(database=graph.database) as session:
            return await session.execute_read(ask)

    def _ask(self, tx: Any) -> Any:
        assert self._config.graph is not None  # noqa: S101 - for mypy; callers have looked
        return tx.run(_CYPHER, id=self._config.graph.person_id).data()


def ledger_key(name: str, number: int) -> str:
    """Return the name under which the recomputes of a strategy's number are kept."""
    return f"stampede:{name}:{number}"


def _begin(pipeline: Any, key: str, run: str) -> Any:
    """One more runs from now on; the first reply is how many do."""
    return pipeline.incr(f"{key}:running").rpush(key, f"b {run} {time.monotonic()!r}")


def _end(pipeline: Any, key: str, run: str, at_once: int) -> Any:
    return pipeline.decr(f"{key}:running").rpush(key, f"e {run} {time.monotonic()!r} {at_once}")


def _new_run() -> str:
    return f"{os.getpid()} {os.urandom(6).hex()}"


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
