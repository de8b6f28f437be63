"""Result of a run, and its summary for the user."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from refresher.demo.counts import Tally
    from refresher.demo.outage import OutageReport
    from refresher.demo.staleness import Comparison
    from refresher.demo.workers import WorkerCounts

NOTICEABLE_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a run.

    ``where`` names the graph; ``slowest_repair_seconds`` is the longest time until the check after the run saw an
    invalidated value fresh again.
    """

    seconds: float
    processes: int
    tally: Tally
    worker: WorkerCounts
    outage: OutageReport | None
    soft_invalidations: int
    hard_invalidations: int
    slowest_repair_seconds: float
    broken: list[str]
    failures: list[str]
    where: str
    comparison: Comparison | None = None

    @property
    def is_fine(self) -> bool:
        """True if no read failed, every guarantee held, and most cold keys were loaded in time."""
        return not (self.broken or self.tally.failed or self.failures or self.tally.gave_up > self.tally.misses)


def paragraphs(result: Result) -> Iterator[str]:
    """Yield the paragraphs of the summary."""
    yield _reads(result)
    yield _refreshes(result)
    if result.outage is not None:
        yield _outage(result, result.outage)
    yield _promises(result)
    if result.comparison is not None:
        yield _compared(result.comparison)
    yield f"Graph: {result.where}. How it works: README.md and docs/; other commands: refresher --help."


def _reads(result: Result) -> str:
    tally = result.tally
    share = tally.at_once.count / tally.reads if tally.reads else 0.0
    stale = (
        f"{_count(tally.stale, 'of them was stale', 'of them were stale')}, by {tally.overdue_seconds:.1f} s at most"
    )
    gave_up = f"; {tally.gave_up:,} gave up: this machine is too busy" if tally.gave_up else ""
    failed = "none failed" if not tally.failed else f"{tally.failed:,} FAILED"
    return (
        f"{_count(tally.reads, 'read')} in {result.seconds:.0f} s from {_count(result.processes, 'process')}; "
        f"{failed}. "
        f"{share:.1%} were answered from the cache at once (p50 {_ms(tally.at_once.quantile_seconds(0.5))}, "
        f"p99 {_ms(tally.at_once.quantile_seconds(0.99))}); {stale if tally.stale else 'none of them was stale'}. "
        f"{_count(tally.misses, 'read')} waited on a cold key, {_ms(tally.waited.longest_seconds)} at most{gave_up}."
    )


def _refreshes(result: Result) -> str:
    tally, worker = result.tally, result.worker
    rejected = worker.rejected_for.total()
    why = ", ".join(f"{count} {reason}" for reason, count in sorted(worker.rejected_for.items()))
    refused = f"{_count(rejected, 'late write was', 'late writes were')} refused ({why})"
    triggered = (
        f"The readers triggered {_count(tally.triggered, 'refresh', 'refreshes')}; {tally.spared:,} times a read found "
        f"one due that was under way already, and triggered none."
    )
    stored = f"The workers stored {_count(worker.committed, 'value')}"
    parts = [triggered, f"{stored}; {refused if rejected else 'no late write had to be refused'}."]
    if worker.abandoned:
        parts.append(f"{_count(worker.abandoned, 'refresh was', 'refreshes were')} abandoned.")
    if dropped := tally.dropped + tally.trigger_failures:
        parts.append(
            f"{_count(dropped, 'trigger was', 'triggers were')} dropped, because the queue was full or the broker did "
            "not answer."
        )
    return " ".join(parts)


def _outage(result: Result, outage: OutageReport) -> str:
    without = result.tally.without_worker
    recovered, left = max(0.0, outage.recovered_seconds), outage.still_stale_keys
    fresh = f"all but {left} were" if left else "all were"
    return (
        f"The worker was killed with SIGKILL at {outage.killed_at_seconds:.1f} s. "
        f"{_count(without.count, 'read was', 'reads were')} answered from the cache in the "
        f"{outage.without_seconds:.1f} s without a worker, as before (p99 {_ms(without.quantile_seconds(0.99))}). "
        f"The first refresh came {outage.first_refresh_seconds:.1f} s after the start of the new worker; "
        f"{_count(outage.stale_keys, 'key')} had grown stale, and {fresh} fresh again {recovered:.1f} s after it "
        f"was ready."
    )


def _promises(result: Result) -> str:
    total = result.soft_invalidations + result.hard_invalidations
    done = f"{_count(total, 'invalidation')} ({result.soft_invalidations} soft, {result.hard_invalidations} hard)"
    repaired = result.slowest_repair_seconds
    in_time = f" (it took up to {repaired:.1f} s)" if repaired >= NOTICEABLE_SECONDS else ""
    if not result.broken:
        return (
            f"{done}: no older value was served as fresh after one, no reader saw a value go back, and at the end "
            f"every invalidated value was right{in_time}."
        )
    more = f"; and {len(result.broken) - 5} more" if len(result.broken) > 5 else ""
    return f"BROKEN GUARANTEES after {done}: " + "; ".join(result.broken[:5]) + more + "."


def _compared(comparison: Comparison) -> str:
    with_feed, without = (
        f"{one.share:.1%} of the reads were outdated, for {_ms(one.longest_seconds)} at most"
        for one in (comparison.by_feed, comparison.by_ttl)
    )
    return (
        f"{_count(comparison.writes, 'other write')} by plain Cypher, which nobody invalidated. With the change feed "
        f"and a TTL of an hour {with_feed}; without it, with a TTL of 3 s, {without}."
    )


def _count(number: int, one: str, many: str = "") -> str:
    plural = many or (one + ("es" if one.endswith("s") else "s"))
    return f"{number:,} {one if number == 1 else plural}"


def _ms(duration_seconds: float) -> str:
    return f"{duration_seconds * 1000:.1f} ms" if duration_seconds < 1 else f"{duration_seconds:.1f} s"
