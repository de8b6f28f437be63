"""Loads and wrong reads with the feed and a long TTL, against a short TTL without it, on a real worker.

TTLs are a thirtieth of an hour and of half a minute, so that a run of seconds stands for minutes. The times of loads
and of the feed are not scaled, so a wrong read of the feed weighs thirty times as much as in reality.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import redis

from api_client import CacheClient
from benchmarks.apparatus.workers import refresh_worker
from benchmarks.feed import queries
from benchmarks.feed.options import FeedOptions
from benchmarks.feed.plant import Plant
from benchmarks.reports.charts import Plot, Series
from benchmarks.reports.results import Result, Table, figure
from refresher.feed.watches import watches

SCALE: Final = 30
TTLS_SECONDS: Final = {"feed, TTL 1 h": 3_600.0, "no feed, TTL 30 s": 30.0}
WRITES_PER_SECOND: Final = (1, 5, 25)
_KEYS: Final = 50
_READS_PER_SECOND: Final = 400
_COLUMNS: Final = ("cache", "writes_per_s", "reads", "loads_per_s", "wrong_%")


class Point(NamedTuple):
    """One cache at one rate of writes; ``wrong`` is the share of reads that began after a newer version's commit."""

    cache: str
    writes_per_second: float
    reads: int
    loads_per_second: float
    wrong: float

    @property
    def cells(self) -> tuple[str, float, int, float, float]:
        return *self[:4], 100 * self.wrong


def measured_savings(plant: Plant, options: FeedOptions) -> Result:
    """Measure each cache at each rate, one after another."""
    found = [point for cache in TTLS_SECONDS for point in _points(plant, cache, options)]
    feed, ttl = ([point for point in found if point.cache == cache] for cache in TTLS_SECONDS)
    figures = []
    for with_feed, without in zip(feed, ttl, strict=True):
        at = f"at {with_feed.writes_per_second:g} writes/s"
        fewer = without.loads_per_second / max(with_feed.loads_per_second, 1e-9)
        figures.append(figure(f"{at}: loads without the feed against with it", (fewer,)))
        figures.append(figure(f"{at}: wrong reads with the feed", (100 * with_feed.wrong,), "%"))
        figures.append(figure(f"{at}: wrong reads without", (100 * without.wrong,), "%"))
    title = f"feed and TTL of an hour, against TTL of 30 s; all TTLs 1:{SCALE}, {_KEYS} keys"
    table = Table(f"{title}, {_READS_PER_SECOND} reads/s", _COLUMNS, [point.cells for point in found])
    charts = [
        _plot("loads", "loads/s", [(point, point.loads_per_second) for point in found]),
        _plot("wrong-reads", "reads of an outdated value (%)", [(point, 100 * point.wrong) for point in found]),
    ]
    return Result("feed-savings", title, figures, tables=[table], charts=charts)


def _plot(name: str, y_label: str, places: list[tuple[Point, float]]) -> Plot:
    series = tuple(
        Series(cache, *zip(*((point.writes_per_second, y) for point, y in places if point.cache == cache), strict=True))
        for cache in TTLS_SECONDS
    )
    return Plot(
        f"feed-{name}", f"{y_label}, TTLs 1:{SCALE}", "writes/s, of all keys", y_label, series, ours=(series[0].label,)
    )


def _points(plant: Plant, cache: str, options: FeedOptions) -> Iterator[Point]:
    has_feed = cache.startswith("feed")
    plant.triggers.uninstall()
    if has_feed:
        plant.triggers.install(watches)
    environ = {
        queries.TTL: str(TTLS_SECONDS[cache] / SCALE), "CACHE_FEED": str(has_feed).lower(), "CACHE_XFETCH_MIN_TTL": "0",
    }  # fmt: skip
    with (
        refresh_worker(plant.servers, plant.environ, queries.__name__, environ),
        CacheClient(plant.servers.lenient_settings()) as client,
        plant.servers.control() as control,
    ):
        for rate in WRITES_PER_SECOND:
            yield _point(plant, client, control, cache, rate, options)


def _point(
    plant: Plant, client: CacheClient, control: redis.Redis, cache: str, rate: int, options: FeedOptions
) -> Point:
    draw, reads, wrong = random.Random(options.seed), 0, 0  # noqa: S311 - no secret
    versions = {number: client.get(queries.QUERY, {"person_id": number}, fresh=True) for number in range(_KEYS)}
    before, began = int(control.get(queries.LOADS) or 0), time.monotonic()
    with _writing(plant, versions, rate, options.seed):
        while (now := time.monotonic()) < began + options.scale.savings_seconds:
            number = draw.randrange(_KEYS)
            committed = versions[number]
            wrong += client.get(queries.QUERY, {"person_id": number}) < committed
            reads += 1
            time.sleep(max(0.0, began + reads / _READS_PER_SECOND - now))
    seconds = time.monotonic() - began
    loads = int(control.get(queries.LOADS) or 0) - before
    return Point(cache, rate, reads, loads / seconds, wrong / reads)


@contextmanager
def _writing(plant: Plant, versions: dict[int, int], rate: int, seed: int) -> Iterator[None]:
    """Write at random times; ``versions`` are those whose commits have returned."""
    draw, ended = random.Random(seed), threading.Event()  # noqa: S311 - no secret

    def write() -> None:
        due = time.monotonic()
        while not ended.wait(max(0.0, due - time.monotonic())):
            number = draw.randrange(_KEYS)
            plant.change_together([number])
            versions[number] += 1
            due += draw.expovariate(rate)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
