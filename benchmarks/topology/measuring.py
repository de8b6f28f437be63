"""All cells of a run, one after the other, on one event loop, over servers and a worker that are up."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import redis.asyncio

from api_client import AsyncCacheClient
from benchmarks.topology.asked import Asked
from benchmarks.topology.cell import Outcome, Window, run_cell
from benchmarks.topology.cell_reader import CellReader, Scene
from benchmarks.topology.levels import Cell, Contestant, GraphKind, Mode, Setting
from benchmarks.topology.on_workers import OnWorkers
from benchmarks.topology.own_process import Origin, OwnProcess
from benchmarks.topology.plan import Variant, base, beta_point, cells, variants
from benchmarks.topology.world import World, keys_of

if TYPE_CHECKING:
    from benchmarks.places import Place
    from benchmarks.topology.graph_place import GraphPlace
    from benchmarks.topology.options import TopologyOptions

_LOADS_AT_ONCE: Final = 8
_LONGER: Final = 2
# An open loop has as many reads under way as are due: they are to wait for a load, never for a connection.
_MAX_CONNECTIONS: Final = 10_000
# Of a closed loop before it has been seen: what two small cores give.
_FIRST_GUESS: Final = {Setting.OWN_PROCESS: 300.0, Setting.WORKERS: 4_000.0}


@dataclass(frozen=True, slots=True)
class Watched:
    """The keys of one graph, and the value of each."""

    keys: list[Asked]
    values: list[Any]


@dataclass(slots=True)
class Bench:
    """What is open while cells run.

    Attributes:
        options: what was asked for.
        place: cache and broker.
        origin: the graph, as the reader's own process asks it.
        reader: this project's client.
        cache, broker, control: plain clients.
        variants: what the worker was told.
        watched: by graph and seed.
    """

    options: TopologyOptions
    place: Place
    origin: Origin
    reader: AsyncCacheClient
    cache: redis.asyncio.Redis
    broker: redis.asyncio.Redis
    control: redis.asyncio.Redis
    variants: list[Variant]
    watched: dict[tuple[GraphKind, int], Watched] = field(default_factory=dict)
    _seen_rates: dict[Contestant, float] = field(default_factory=dict)

    async def watch(self, world: World) -> None:
        """Choose the keys of every graph, and load their values once; that warms the graph up, too."""
        at_once = asyncio.Semaphore(_LOADS_AT_ONCE)

        async def load(asked: Asked) -> Any:
            async with at_once:
                return await self.origin.load(asked, 0.0)

        for (kind, seed), part in world.parts.items():
            keys = keys_of(part, self.options.extent.keys, seed)
            self.watched[kind, seed] = Watched(keys, list(await asyncio.gather(*map(load, keys))))

    async def warm_up(self) -> None:
        """Let every process do once what it does once: all keys are stale, and each is asked for."""
        extent = self.options.extent
        point = base(extent.graphs_with_grid[0], extent)
        for setting in Setting:
            reader = self._reader(Cell(point, Contestant(setting, Mode.PLAIN), self.options.seed))
            numbers = range(len(reader.scene.keys))
            await reader.put([-1.0] * len(numbers))
            await asyncio.gather(*map(reader.read, numbers))
            await reader.clear()

    async def run(self, cell: Cell) -> Outcome:
        """Run one cell."""
        load, extent = cell.point.load, self.options.extent
        expected = load.reads_per_second or self._seen_rates.get(
            cell.contestant, _FIRST_GUESS[cell.contestant.setting]
        )  # fmt: skip
        is_longer = cell.point == beta_point(cell.point.graph, extent)
        window = Window(extent.warm_up_seconds, extent.cell_seconds * (_LONGER if is_longer else 1))
        outcome = await run_cell(self._reader(cell), window, expected)
        if load.clients:
            self._seen_rates[cell.contestant] = max(outcome.reads_per_second, 1.0)
        return outcome

    def _reader(self, cell: Cell) -> CellReader:
        watched = self.watched[cell.point.graph, cell.seed]
        scene = Scene(cell, watched.keys, watched.values)
        if cell.contestant.setting is Setting.OWN_PROCESS:
            rng = random.Random(cell.seed)  # noqa: S311 - no secret
            return OwnProcess(scene, self.cache, self.origin, self.place.namespace, rng)
        point, contestant = cell.point, cell.contestant
        variant = (point.ttl_seconds, point.pause_seconds, contestant.mode, contestant.beta0)
        number = self.variants.index(variant)
        return OnWorkers(scene, self.reader, number, self.cache, self.broker, self.control)


async def measured(
    options: TopologyOptions, place: Place, graph: GraphPlace, world: World, on_cell: Callable[[Cell], None]
) -> list[Outcome]:
    """Run all cells; ``on_cell`` is called before each."""
    async with AsyncExitStack() as stack:
        driver = await stack.enter_async_context(graph.async_driver())
        cache, broker, control = [
            redis.asyncio.Redis.from_url(url, max_connections=_MAX_CONNECTIONS)
            for url in (place.cache_url, place.broker_url, place.control_url)
        ]
        for client in (cache, broker, control):
            stack.push_async_callback(client.aclose)
        reader = AsyncCacheClient(place.patient_settings())
        stack.push_async_callback(reader.close)
        origin, known = Origin(driver, graph.database), variants(options.extent, options.seed)
        bench = Bench(options, place, origin, reader, cache, broker, control, known)
        await bench.watch(world)
        await bench.warm_up()
        return [await bench.run(cell) for cell in _told(cells(options.extent, options.seed), on_cell)]


def _told(all_cells: Iterator[Cell], on_cell: Callable[[Cell], None]) -> Iterator[Cell]:
    for cell in all_cells:
        on_cell(cell)
        yield cell
