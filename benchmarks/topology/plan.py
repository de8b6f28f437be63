"""Which cells are measured, and in which order. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Final, TypeAlias

from benchmarks.topology.levels import Cell, Contestant, GraphKind, Mode, Point, Setting
from benchmarks.topology.options import BASE_BETA, Extent

MODES: Final = tuple(Mode)
Variant: TypeAlias = tuple[float, float, Mode, float]
"""What a worker has to know of a cell: TTL s, pause s, mode, β0."""


def contestants() -> list[Contestant]:
    """Return who is measured at every point: each mode in each setting."""
    return [Contestant(setting, mode, BASE_BETA) for setting, mode in product(Setting, MODES)]


def with_other_betas(betas: Sequence[float]) -> list[Contestant]:
    """Return who is measured besides where β is varied: the modes that have one, with others than the usual one."""
    early = [mode for mode in MODES if mode is not Mode.NO_EARLY]
    return [
        Contestant(setting, mode, beta)
        for setting, mode, beta in product(Setting, early, betas)
        if beta != BASE_BETA
    ]  # fmt: skip


def base(graph: GraphKind, extent: Extent) -> Point:
    """Return the point at which graphs are compared: the first of all levels."""
    levels = extent.levels
    return Point(graph, levels.ttls_seconds[0], levels.pauses_seconds[0], levels.loads[0], levels.skews[0])


def beta_point(graph: GraphKind, extent: Extent) -> Point:
    """Return the point at which β is varied: the base, but with an open loop.

    There as many reads come whatever they meet, so that recomputes can be compared.
    """
    return replace(base(graph, extent), load=extent.levels.loads[-1])


def points(extent: Extent) -> list[Point]:
    """Return all points: the grid of the graphs that have one, and the base of the others."""
    levels = extent.levels
    found = []
    for graph in GraphKind:
        if graph not in extent.graphs_with_grid:
            found.append(base(graph, extent))
            continue
        axes = product(levels.ttls_seconds, levels.pauses_seconds, levels.loads, levels.skews)
        found += [Point(graph, *axis) for axis in axes]
    return found


def cells(extent: Extent, first_seed: int) -> Iterator[Cell]:
    """Yield all cells, seed by seed, the points of a seed in an order drawn anew.

    The contestants of a point come one right after the other, in an order drawn anew too: what is compared met the
    same weather.
    """
    with_betas = {beta_point(graph, extent) for graph in extent.graphs_with_grid}
    for seed in range(first_seed, first_seed + extent.seeds):
        order = random.Random(seed)  # noqa: S311 - no secret
        drawn = points(extent)
        order.shuffle(drawn)
        for point in drawn:
            who = contestants()
            if point in with_betas:
                who += with_other_betas(extent.levels.betas)
            order.shuffle(who)
            yield from (Cell(point, contestant, seed) for contestant in who)


def variants(extent: Extent, first_seed: int) -> list[Variant]:
    """Return the variants that occur, each once, in the order in which the worker is told."""
    return sorted(
        {
            (cell.point.ttl_seconds, cell.point.pause_seconds, cell.contestant.mode, cell.contestant.beta0)
            for cell in cells(extent, first_seed)
        }
    )
