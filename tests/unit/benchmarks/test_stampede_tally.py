"""What the reads and recomputes of a variant come to, who runs, and what options mean."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.errors import BenchError
from benchmarks.stampede import steady as crash
from benchmarks.stampede.config import Kind, Scenario
from benchmarks.stampede.origin import Recompute, parsed
from benchmarks.stampede.process_group import READS
from benchmarks.stampede.readers import READ
from benchmarks.stampede.recorder import Mark
from benchmarks.stampede.steady import VariantRun, batches_of
from benchmarks.stampede.steady_report import result_of
from benchmarks.stampede.tally import begun_between, between, count
from benchmarks.stampede.variants import BY_NAME, STRATEGIES, Variant, chosen, variants_of


def reads_of(*reads: tuple[float, float, int]) -> NDArray[Any]:
    return np.frombuffer(b"".join(READ.pack(*read) for read in reads), dtype=READS)


def test_reads_count_from_the_second_on_and_within_the_span() -> None:
    reads = reads_of((9.9, 0.1, 0), (10.0, 0.1, Mark.FIRST), (10.0, 0.1, 0), (11.9, 9.0, Mark.MISS), (12.0, 0.1, 0))
    assert between(reads, 10.0, 12.0)["began"].tolist() == [10.0, 11.9]


def test_everything_is_counted_by_its_mark() -> None:
    marks = (
        0, Mark.STALE, Mark.EARLY | Mark.COMPUTED, Mark.EARLY | Mark.DUCKED | Mark.CONTENDED,
        Mark.MISS | Mark.CONTENDED, Mark.ERROR, Mark.MISS | Mark.ERROR,
    )  # fmt: skip
    reads = reads_of(*((float(at), 0.001 * (at + 1), int(mark)) for at, mark in enumerate(marks)))
    recomputes = [Recompute(1, 0.0, 1.0, 1), Recompute(2, 0.5, None, 2)]
    tally = count(reads, recomputes, 2.0, Counter(OSError=2))
    assert (tally.reads, tally.hits, tally.misses, tally.errors) == (7, 4, 2, 2)
    assert (tally.early, tally.ducked_out, tally.contention, tally.stale) == (2, 1, 2, 1)
    assert (tally.recomputes, tally.most_at_once, tally.recomputes_per_second) == (2, 2, 1.0)
    assert (tally.p50_ms, tally.max_ms) == (pytest.approx(4.0), pytest.approx(7.0))


def test_what_recomputes_leave_is_read_back() -> None:
    lines = [b"b 7 aa 1.5", b"b 8 bb 1.0", b"e 8 bb 2.0 2"]
    assert parsed(lines) == [Recompute(8, 1.0, 2.0, 2), Recompute(7, 1.5, None, 1)]
    assert begun_between(parsed(lines), 1.2, 2.0) == [Recompute(7, 1.5, None, 1)]


def test_after_a_kill_the_next_recompute_and_the_next_fresh_value_are_told() -> None:
    recomputes = [Recompute(1, 9.9, None, 1), Recompute(2, 10.5, 10.75, 1), Recompute(3, 12.0, 12.2, 1)]
    reads = reads_of((10.1, 0.001, Mark.STALE), (10.2, 0.5, Mark.MISS), (10.8, 0.001, 0))
    crash_after = crash.crash_after(10.0, 15.0, reads, recomputes)
    assert (crash_after.again, crash_after.fresh) == (pytest.approx(0.5), pytest.approx(0.75))
    assert (crash_after.meanwhile.reads, crash_after.meanwhile.stale, crash_after.meanwhile.misses) == (2, 1, 1)
    never = crash.crash_after(10.0, 15.0, reads, recomputes[:1])
    assert math.isnan(never.again)
    assert math.isnan(never.fresh)


def titles(scenario: Scenario, readers: Kind | None, *names: str) -> list[tuple[str, str]]:
    return [(variant.title, variant.kind) for variant in variants_of(scenario, chosen(names), readers)[0]]


def test_each_strategy_is_read_by_what_it_is_made_for_and_ours_by_both() -> None:
    names = ("fetch", "ours")
    assert titles(Scenario.WORKERS, None, *names) == [("fetch", "processes"), ("ours", "processes")]
    assert titles(Scenario.HERD, None, *names) == [("fetch", "asyncio"), ("ours", "asyncio")]
    assert titles(Scenario.HERD, Kind.THREADS, *names) == [("fetch", "threads"), ("ours", "threads")]


@pytest.mark.skipif(bool(BY_NAME["dogpile"].missing()), reason="dogpile.cache is not installed")
def test_who_is_read_by_threads_alone_has_ours_by_threads_beside_it() -> None:
    assert titles(Scenario.HERD, None, "ours", "dogpile") == [
        ("ours", "asyncio"), ("dogpile.cache (threads)", "threads"), ("ours (threads)", "threads"),
    ]  # fmt: skip
    variants, left_out = variants_of(Scenario.HERD, chosen(("dogpile",)), Kind.ASYNCIO)
    assert (variants, left_out) == ([], {"dogpile.cache": "can't be read by asyncio"})


def test_who_waits_busily_runs_alone() -> None:
    variants = [Variant(Scenario.WORKERS, strategy, Kind.PROCESSES, strategy.title) for strategy in STRATEGIES]
    batches = [[variant.strategy.name for variant in batch] for batch in batches_of(variants, 5)]
    assert batches[-1] == ["cashews-lock"]
    assert [len(batch) for batch in batches] == [5, 5, 1]
    assert sorted(name for batch in batches for name in batch) == sorted(BY_NAME)


def test_every_strategy_says_what_it_cannot_do() -> None:
    assert [strategy.name for strategy in STRATEGIES if not strategy.limits.endswith(".")] == []
    with pytest.raises(BenchError, match="no strategy 'nonsense'; there are fetch, locked"):
        chosen(["nonsense"])


def test_a_run_becomes_tables_figures_and_pictures() -> None:
    variant = Variant(Scenario.WORKERS, BY_NAME["ours"], Kind.PROCESSES, "ours")
    reads = reads_of((10.1, 0.001, 0), (10.2, 0.002, Mark.EARLY), (10.3, 0.2, Mark.MISS))
    recomputes = [Recompute(7, 10.25, 10.45, 1)]
    run = VariantRun(variant, reads, recomputes, 10.0, 12.0, count(reads, recomputes, 2.0))
    result = result_of(Scenario.WORKERS, [run])
    figures = {figure.what: (figure.value, figure.reached) for figure in result.figures}
    assert figures["ours: misses after the first round"] == (1.0, False)
    assert figures["ours: recomputes at once, at most"] == (1.0, True)
    assert {plot.name for plot in result.charts} == {"workers-recomputes", "workers-latency"}
