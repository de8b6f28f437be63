"""Costs of the params and values of real applications: µs per key, calls per hit, encoding of rows."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from time import perf_counter
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

import msgspec

from api_client import CacheClient
from benchmarks.apparatus.entries import QUERY, Seeder
from benchmarks.apparatus.servers import Servers
from benchmarks.hits.options import HitsOptions
from benchmarks.reports.results import Figure, Must, Result, Target, figure
from refresher.graph import values

PARAMS: Final[Mapping[str, tuple[dict[str, Any], float]]] = MappingProxyType(
    {
        "an int": ({"person_id": 42}, 0.7),
        "a UUID": ({"id": UUID(int=7)}, 2),
        "a float, an int": ({"s": 0.01, "i": 3}, 2),
        "a date": ({"day": date(2026, 1, 1)}, 2),
        "a text of 200": ({"q": "x" * 200}, 2),
        "a datetime": ({"at": datetime(2026, 1, 1, tzinfo=UTC)}, 3),
        "a Decimal": ({"price": Decimal("1.10")}, 3),
        "a list of 3": ({"ids": [1, 2, 3]}, 3),
        "a small dict": ({"filter": {"a": 1, "b": "x"}}, 3),
        "a list of 100 ints": ({"ids": list(range(100))}, 8),
    }
)
"""Params, and the allowed µs for their key."""
_CALLED: Final[dict[str, Any]] = {"s": 0.01, "i": 3}
_MAX_CALLS: Final = 35
_ROWS: Final = 10_000
_MAX_ENCODING: Final = 6


def measured_costs(servers: Servers, options: HitsOptions) -> Result:
    """Measure each kind of params in turn, in every round, with the same object again and again, as in a view."""
    figures = [*_keys(servers, options), _calls(servers), _encoding(options)]
    return Result("costs", "what keys and values cost", figures)


def _keys(servers: Servers, options: HitsOptions) -> list[Figure]:
    with CacheClient(servers.lenient_settings()) as client:
        keys = {name: partial(client.key, QUERY, params) for name, (params, _) in PARAMS.items()}
        took = _interleaved(keys, options)
    return [
        figure(f"key of {name}", [1e6 * one for one in took[name]], "µs", Target(Must.AT_MOST, most))
        for name, (_, most) in PARAMS.items()
    ]


def _calls(servers: Servers) -> Figure:
    with servers.plain() as redis, CacheClient(servers.lenient_settings()) as client:
        Seeder(redis, servers.namespace, params=lambda _: _CALLED).put([1])
        for _ in range(3):
            client.get(QUERY, _CALLED)
        events: list[str] = []
        sys.setprofile(lambda _frame, event, _arg: events.append(event))
        try:
            client.get(QUERY, _CALLED)
        finally:
            sys.setprofile(None)
    calls = events.count("call")
    return figure("Python calls of a warm hit", (calls,), "", Target(Must.AT_MOST, _MAX_CALLS), repr(_CALLED))


def _encoding(options: HitsOptions) -> Figure:
    rows = [
        {"id": i, "name": f"Person {i}", "age": i % 90, "score": i * 0.37, "city": "Somewhere", "active": i % 2 == 0}
        for i in range(_ROWS)
    ]
    encoders: dict[str, Callable[[], object]] = {
        "ours": partial(values.encode, rows, query=QUERY, max_bytes=1 << 30),
        "msgspec": partial(msgspec.msgpack.encode, rows),
    }
    took = _interleaved(encoders, options)
    ratios = [one / alone for one, alone in zip(took["ours"], took["msgspec"], strict=True)]
    what = f"encoding {_ROWS:,} rows of six fields, against msgspec alone"
    return figure(what, ratios, "×", Target(Must.AT_MOST, _MAX_ENCODING))


def _interleaved(calls: Mapping[str, Callable[[], object]], options: HitsOptions) -> dict[str, list[float]]:
    """Return the seconds of one call of each function for each round, taking the fastest slice."""
    scale = options.scale
    repeats = {name: _repeats(call, scale.slice_seconds) for name, call in calls.items()}
    rounds = [_round(calls, repeats, scale.slices) for _ in range(scale.rounds)]
    return {name: [fastest[name] for fastest in rounds] for name in calls}


def _round(calls: Mapping[str, Callable[[], object]], repeats: Mapping[str, int], slices: int) -> dict[str, float]:
    turns = [{name: _seconds(call, repeats[name]) for name, call in calls.items()} for _ in range(slices)]
    return {name: min(turn[name] for turn in turns) for name in calls}


def _repeats(call: Callable[[], object], slice_seconds: float) -> int:
    _seconds(call, 10)
    return max(1, int(slice_seconds / 4 / _seconds(call, 10)))


def _seconds(call: Callable[[], object], repeats: int) -> float:
    gc.disable()
    try:
        began = perf_counter()
        for _ in range(repeats):
            call()
        return (perf_counter() - began) / repeats
    finally:
        gc.enable()
