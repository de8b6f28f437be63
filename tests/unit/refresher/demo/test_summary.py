"""The summary's words."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from rich.console import Console

from refresher.demo.counts import Histogram, Tally
from refresher.demo.display import Snapshot, plain_lines, table_of
from refresher.demo.outage import OutageReport, Stage
from refresher.demo.summary import Result, paragraphs
from refresher.demo.workers import WorkerCounts


def latencies(count: int, duration_seconds: float) -> Histogram:
    histogram = Histogram()
    for _ in range(count):
        histogram.record(duration_seconds)
    return histogram


TALLY = Tally(
    fresh=900, stale=80, misses=20, suppressed=400, triggered=91, deduplicated=9, overdue_seconds=3.21,
    at_once=latencies(980, 0.0005), waited=latencies(20, 0.42), without_worker=latencies(200, 0.001),
)  # fmt: skip
FINE = Result(
    seconds=20.3,
    processes=2,
    tally=TALLY,
    worker=WorkerCounts(committed=90),
    outage=OutageReport(10.02, 2.9, 0.8, 37, 2.41),
    soft_invalidations=7,
    hard_invalidations=5,
    slowest_repair_seconds=0.31,
    broken=[],
    failures=[],
    where="embedded ArcadeDB 26.10.2",
)


def words(result: Result) -> str:
    return " ".join(paragraphs(result))


def test_a_fine_run_is_summarised_in_sentences() -> None:
    text = words(FINE)
    assert FINE.is_fine
    for sentence in (
        "1,000 reads in 20 s from 2 processes; none failed.",
        "98.0% were answered from the cache at once (p50 0.5 ms, p99 0.5 ms); 80 of them were stale, by 3.2 s at most.",
        "20 reads waited on a cold key, 420.0 ms at most.",
        "triggered 91 refreshes; 409 times a read found one due that was under way already",
        "The workers stored 90 values; no late write had to be refused.",
        "killed with SIGKILL at 10.0 s. 200 reads were answered from the cache in the 2.9 s without a worker",
        "The first refresh came 0.8 s after the start of the new worker; 37 keys had grown stale",
        "12 invalidations (7 soft, 5 hard): no older value was served as fresh after one",
        "Graph: embedded ArcadeDB 26.10.2.",
    ):
        assert sentence in text
    assert "BROKEN" not in text
    assert "FAILED" not in text


def test_keys_that_are_still_stale_are_not_reported_as_fresh() -> None:
    text = words(replace(FINE, outage=OutageReport(10.02, 2.9, 0.8, 37, 2.41, 3)))
    assert "37 keys had grown stale, and all but 3 were fresh again 2.4 s after it was ready." in text


def test_a_run_without_traffic_or_accident_has_a_summary_too() -> None:
    text = words(replace(FINE, tally=Tally(), outage=None))
    assert "0 reads" in text
    assert "SIGKILL" not in text


def test_refused_writes_and_dropped_triggers_are_reported() -> None:
    text = words(replace(FINE, worker=WorkerCounts(90, Counter(superseded=2, lost=1)), tally=replace(TALLY, dropped=4)))
    assert "3 late writes were refused (1 lost, 2 superseded)" in text
    assert "4 triggers were dropped, because the queue was full" in text


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (
            replace(FINE, broken=["a went back"]),
            "BROKEN GUARANTEES after 12 invalidations (7 soft, 5 hard): a went back.",
        ),
        (replace(FINE, broken=list("abcdefg")), "a; b; c; d; e; and 2 more."),
        (replace(FINE, tally=replace(TALLY, failed=3)), "3 FAILED"),
    ],
)
def test_a_broken_guarantee_or_a_failed_read_is_reported_and_not_fine(result: Result, sentence: str) -> None:
    assert not result.is_fine
    assert sentence in words(result)


SNAPSHOT = Snapshot(
    elapsed_seconds=11.5, stage=Stage.WITHOUT_WORKER, tally=TALLY,
    recent=Tally(fresh=3_975, at_once=latencies(10, 0.0005)), queued=12, worker=WorkerCounts(1_234, running=3),
    recent_loads=88, lead_seconds=0.0312, broken=0,
    history=[(10.0, "worker killed (SIGKILL, with its pool); reads continue")],
)  # fmt: skip


@pytest.mark.parametrize("columns", [80, 120])
def test_the_live_table_fits_the_terminal(columns: int) -> None:
    console = Console(width=columns, height=24, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(table_of(SNAPSHOT, 20.0))
    lines = captured.get().splitlines()
    assert len(lines) <= 18
    assert {len(line) for line in lines} == {columns}
    text = captured.get()
    for shown in ("1,988", "stale served", "deduplicated", "origin queries/s", "31.2 ms", "reads continue", "of 20 s"):
        assert shown in text


def test_the_table_keeps_its_height_and_says_until_when() -> None:
    console = Console(width=80, force_terminal=True, color_system=None)
    heights = set()
    for history in ([], SNAPSHOT.history * 9):
        with console.capture() as captured:
            console.print(table_of(replace(SNAPSHOT, history=history), None))
        heights.add(len(captured.get().splitlines()))
        assert "until Ctrl-C" in captured.get()
    assert len(heights) == 1


def test_plain_lines_come_every_two_seconds_and_when_something_happens() -> None:
    console = Console(width=80, force_terminal=False)
    with console.capture() as captured, plain_lines(console) as show:
        for elapsed_seconds in (0.1, 0.3, 0.6, 2.2, 2.4):
            show(replace(SNAPSHOT, elapsed_seconds=elapsed_seconds))
    lines = captured.get().splitlines()
    assert len(lines) == 3
    assert "worker killed" in lines[0]
    assert "1,988 reads/s" in lines[1]
