"""A cell of `python -m benchmarks topology`, on a real Redis, that is cancelled wherever it awaits something."""

from __future__ import annotations

import asyncio
import random
from itertools import count
from typing import Any

import pytest
import redis.asyncio

from benchmarks.topology.cell import Window, run_cell
from benchmarks.topology.cell_reader import Scene
from benchmarks.topology.levels import Cell, Contestant, GraphKind, Load, Mode, Point, Setting, Skew
from benchmarks.topology.options import TopologyOptions
from benchmarks.topology.origin_load import OriginLoad
from benchmarks.topology.own_process import OwnProcess
from benchmarks.topology.world import keys_of, made_world
from refresher.embedded import RedisServer
from tests.support.cancelling import CancelledAt, CancelPoint

POINT = Point(GraphKind.RMAT, 1.0, 0.0, Load(clients=2), Skew.EVENLY)
KEYS = 3
WINDOW = Window(0.0, 0.01)


class Origin:
    """Loads at once."""

    load_so_far = OriginLoad()

    async def load(self, *_: Any) -> list[Any]:
        return []


@pytest.fixture(scope="module")
def scene() -> Scene:
    keys = keys_of(made_world(TopologyOptions(quick=True)).parts[GraphKind.RMAT, 1], KEYS, 1)
    return Scene(Cell(POINT, Contestant(Setting.OWN_PROCESS, Mode.PLAIN), 1), keys, [[]] * KEYS)


@pytest.mark.parametrize("moment", list(CancelPoint))
def test_wherever_a_cell_is_cancelled_it_ends_so(moment: CancelPoint, scene: Scene, clean_redis: RedisServer) -> None:
    rng = random.Random(1)  # noqa: S311 - no secret

    async def is_cancelled(number: int) -> bool:
        async with redis.asyncio.Redis.from_url(clean_redis.url(0)) as client:
            reader = OwnProcess(scene, client, Origin(), "bench", rng)  # type: ignore[arg-type]
            cell = CancelledAt(run_cell(reader, WINDOW, 100.0), number, moment)
            (end,) = await asyncio.gather(asyncio.create_task(cell.run()), return_exceptions=True)
        assert isinstance(end, asyncio.CancelledError) == cell.has_cancelled, (number, end)
        return cell.has_cancelled

    awaits = next(number for number in count() if not asyncio.run(is_cancelled(number)))
    assert awaits > 3  # to put the keys, to wait, and to clear them away
