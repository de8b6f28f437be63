"""What simulated runs came to, as rows: one a run for people, one a second for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from benchmarks.simulate.outcome import Outcome
from benchmarks.simulate.records import (
    AGAIN,
    BUSY,
    COMMITS,
    DROPPED,
    EARLY,
    FORGOTTEN,
    IDLE_MESSAGES,
    LEADS,
    LOST_RUNS,
    MISS,
    PUBLISHED,
    STALE,
    STALE_READS,
    TIMED_OUT_READS,
    WAITING_READS,
)
from benchmarks.tables import Cell, Table

_RUN_COLUMNS: Final = (
    "run", "workers", "million_reads", "loads", "early", "stale", "misses", "stale_reads_%", "waiting_reads_%",
    "timed_out_%", "wait_p50_ms", "wait_p99_ms", "lead_p50_ms", "lead_p99_ms", "in_time_%", "busy_%", "longest_queue",
    "dropped", "repeated", "seconds",
)  # fmt: skip
_COUNTERS: Final = {
    "loads_early": EARLY,
    "loads_stale": STALE,
    "loads_miss": MISS,
    "published": PUBLISHED,
    "published_again": AGAIN,
    "early_dropped": DROPPED,
    "idle_messages": IDLE_MESSAGES,
    "lost_runs": LOST_RUNS,
    "commits": COMMITS,
    "messages_forgotten": FORGOTTEN,
}
_AMOUNTS: Final = {
    "stale_reads": STALE_READS,
    "waiting_reads": WAITING_READS,
    "timed_out_reads": TIMED_OUT_READS,
    "busy_workers": BUSY,
    "lead_seconds_of_commits": LEADS,
}


def runs_table(scenario: str, title: str, outcomes: Mapping[str, Outcome]) -> Table:
    """Return a line for each run of a scenario, for people."""
    rows = tuple((name, *_summary(outcome)) for name, outcome in outcomes.items())
    return Table(f"{scenario}-runs", title, _RUN_COLUMNS, rows)


def events_table(scenario: str, outcomes: Mapping[str, Outcome]) -> Table:
    """Return a line for each second of each run."""
    columns = ("run", "second", "reads", *_COUNTERS, *_AMOUNTS, "queued_misses", "queued_others")
    rows = tuple(row for name, outcome in outcomes.items() for row in _seconds(name, outcome))
    return Table(f"{scenario}-events", f"{scenario}, by second", columns, rows, is_shown=False)


def _summary(outcome: Outcome) -> tuple[Cell, ...]:
    counters = outcome.counters.sum(axis=1)
    return (
        "-" if outcome.world.in_readers else outcome.world.workers,
        outcome.reads / 1e6, outcome.loads(), outcome.loads(EARLY), outcome.loads(STALE), outcome.loads(MISS),
        100 * outcome.stale_share, 100 * outcome.waiting_share, 100 * outcome.timed_out_share,
        outcome.wait_ms(50), outcome.wait_ms(99), outcome.lead_ms(50), outcome.lead_ms(99),
        100 * outcome.in_time_share, None if outcome.world.in_readers else 100 * outcome.utilisation,
        int(outcome.lengths.sum(axis=0).max()), int(counters[DROPPED]), int(counters[AGAIN]), outcome.wall_seconds,
    )  # fmt: skip


def _seconds(name: str, outcome: Outcome) -> Iterator[tuple[Cell, ...]]:
    for second in range(outcome.world.seconds):
        yield (
            name, second, outcome.world.reads_per_second,
            *(int(outcome.counters[what, second]) for what in _COUNTERS.values()),
            *(float(outcome.amounts[what, second]) for what in _AMOUNTS.values()),
            *(int(length) for length in outcome.lengths[:, second]),
        )  # fmt: skip
