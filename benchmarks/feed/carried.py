"""The delay of changes at a steady rate, and the changes per second that one consumer carries.

Each write changes one person with a fresh entry, which has to be invalidated. The writers are a process of their own,
and use the clock that all processes of a machine share.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from multiprocessing.connection import Connection
from typing import Final

from benchmarks.apparatus.processes import end_children, replies, start_child
from benchmarks.apparatus.statistics import WARM_UP_ROUND, percentile
from benchmarks.errors import BenchError
from benchmarks.feed.options import FeedOptions
from benchmarks.feed.plant import PERSONS, Plant, driver_of
from benchmarks.feed.queries import CHANGE, tag_of
from benchmarks.reports.charts import Plot, PlotKind, Series
from benchmarks.reports.results import Must, Result, Table, TableCell, Target, figure
from refresher.feed.consumer import Invalidated
from refresher.feed.watches import watches

WRITES_PER_SECOND: Final = 200
_WRITERS: Final = 8
_PATIENCE_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.01
_TARGETS: Final = {50: Target(Must.AT_MOST, 100), 99: Target(Must.AT_MOST, 500)}
_MIN_RATE: Final = Target(Must.AT_LEAST, 2_000)


def write_at_rate(pipe: Connection, environ: Mapping[str, str], numbers: Sequence[int]) -> None:
    """Change persons one after another at a steady rate; send the times of the commit calls (monotonic seconds)."""
    committed: dict[int, float] = {}
    with closing(driver_of(environ)) as driver, ThreadPoolExecutor(_WRITERS) as pool:
        driver.verify_connectivity()
        pipe.send("ready")
        begins = pipe.recv()

        def write(place: int) -> None:
            time.sleep(max(0.0, begins + place / WRITES_PER_SECOND - time.monotonic()))
            with driver.session(database=environ["NEO4J_DATABASE"]) as session, session.begin_transaction() as tx:
                tx.run(CHANGE, ids=[numbers[place]]).consume()
                committed[numbers[place]] = time.monotonic()
                tx.commit()

        list(pool.map(write, range(len(numbers))))
    pipe.send(committed)


class _Seen:
    """Times at which tags were invalidated, and the number of changes."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}
        self.changes = self.entries = 0

    def __call__(self, done: Invalidated) -> None:
        self.at |= dict.fromkeys(done.changes.tags, time.monotonic())
        self.changes += len(done.changes.positions)
        self.entries += done.by_query.total()

    def wait_for(self, changes: int) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while self.changes < changes:
            if time.monotonic() >= deadline:
                raise BenchError(f"{self.changes} of {changes} changes were invalidated")
            time.sleep(_POLL_SECONDS)
        if self.entries != changes:
            raise BenchError(f"{changes} changes invalidated {self.entries} entries")


def measured_delay(plant: Plant, options: FeedOptions) -> Result:
    """Measure the time from the call of commit to the invalidation, while persons are written at a steady rate."""
    plant.triggers.install(watches)
    rounds = [_delays_ms(plant, options.scale.delay_seconds) for _ in range(options.scale.rounds + 1)]
    counted = rounds[WARM_UP_ROUND + 1 :]
    found = sorted(ms for one in counted for ms in one)
    series = Series("a change", tuple(found), tuple((rank + 1) / len(found) for rank in range(len(found))))
    plot = Plot(
        "feed-delay", f"From commit to invalidation, {WRITES_PER_SECOND} writes/s", "time (ms)",
        "share invalidated by then", (series,), PlotKind.STEPS, "All writes of all rounds.", x_log=True,
    )  # fmt: skip
    rows: list[Sequence[TableCell]] = [
        (name, len(ms), *(percentile(ms, percent) for percent in (50, 90, 99, 100)))
        for name, ms in (("the first round, which does not count", rounds[WARM_UP_ROUND]), ("all others", found))
    ]
    figures = [
        figure(f"from commit to invalidation, p{percent}", [percentile(ms, percent) for ms in counted], "ms", target)
        for percent, target in _TARGETS.items()
    ]
    columns = ("rounds", "writes", "p50_ms", "p90_ms", "p99_ms", "longest_ms")
    title = f"from commit to invalidation, {WRITES_PER_SECOND} writes a second"
    return Result("feed-delay", title, figures, tables=[Table("times in ms", columns, rows)], charts=[plot])


def _delays_ms(plant: Plant, seconds: float) -> list[float]:
    numbers = range(min(PERSONS, round(seconds * WRITES_PER_SECOND)))
    plant.put_entries(numbers)
    seen = _Seen()
    child = start_child(write_at_rate, plant.environ, numbers)
    try:
        replies([child], _PATIENCE_SECONDS)
        with plant.consuming(seen):
            child.pipe.send(time.monotonic() + 1.0)
            (committed,) = replies([child], seconds + _PATIENCE_SECONDS)
            seen.wait_for(len(numbers))
    finally:
        end_children([child])
    return [1e3 * (seen.at[tag_of(number)] - at) for number, at in committed.items()]


def measured_throughput(plant: Plant, options: FeedOptions) -> Result:
    """Measure how fast a consumer works off a backlog; no note may be left at the end."""
    plant.triggers.install(watches)
    rates = [_changes_per_second(plant, range(options.scale.waiting)) for _ in range(options.scale.rounds + 1)]
    rate = figure("one consumer", rates[WARM_UP_ROUND + 1 :], "changes/s", _MIN_RATE)
    return Result("feed-throughput", "what one consumer carries: each change in a transaction of its own", [rate])


def _changes_per_second(plant: Plant, numbers: Sequence[int]) -> float:
    plant.put_entries(numbers)
    plant.change_each(numbers)
    seen, began = _Seen(), time.monotonic()
    with plant.consuming(seen):
        seen.wait_for(len(numbers))
    seconds = time.monotonic() - began  # including the acknowledgements
    if left := plant.triggers.backlog().notes:
        raise BenchError(f"{left} notes were left")
    return len(numbers) / seconds
