"""The pure parts of `python -m benchmarks topology`: what is measured, in which order, and what is made of it."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from itertools import chain, groupby, pairwise, repeat
from typing import Any

import numpy as np
import pytest

from benchmarks.reports.kept import kept
from benchmarks.topology.charts import lead_times_ms
from benchmarks.topology.model import keys_of, make_model, shares
from benchmarks.topology.options import TopologyOptions
from benchmarks.topology.plan import (
    Candidate,
    GraphKind,
    Load,
    Mode,
    Setting,
    Skew,
    Trial,
    base,
    points,
    trials,
)
from benchmarks.topology.queries import Kind
from benchmarks.topology.reader import LeadTime, Served
from benchmarks.topology.results import results_of
from benchmarks.topology.spread import Measured, compact, confidence, p95_ms, spread_of
from benchmarks.topology.trial import Outcome, remaining_seconds, run_traffic

SMALL = TopologyOptions(quick=True, seeds=2)


def outcome(trial: Trial, **changes: Any) -> Outcome:
    fields: dict[str, Any] = {
        "trial": trial, "reads_per_second": 100.0, "times_ms": (1.0, 2.0), "waited": 0.0, "stale": 0.0, "failures": {},
        "recomputes_per_second": 10.0, "origin_busy": 0.1, "lead_times": (LeadTime(3, 0.02),), "early_per_second": 1.0,
    }  # fmt: skip
    return Outcome(**(fields | changes))


def test_every_candidate_is_at_every_point_once_a_seed() -> None:
    extent = TopologyOptions().extent
    found = Counter((trial.seed, trial.point, trial.candidate) for trial in trials(extent, 7))
    assert set(found.values()) == {1}
    usual = [Candidate(setting, mode) for setting in Setting for mode in Mode]
    assert all(found[seed, point, who] for seed in range(7, 12) for point in points(extent) for who in usual)
    # The whole grid: two levels of each of the four, and the other graph's base.
    assert len(points(extent)) == 2 * 2 * 2 * 2 + 1
    assert len({point.graph for point in points(extent)}) == 2


def test_who_is_compared_runs_one_right_after_the_other() -> None:
    runs = [key for key, _ in groupby(trials(TopologyOptions().extent, 1), key=lambda trial: (trial.seed, trial.point))]
    assert len(runs) == len(set(runs))
    orders = {
        tuple(trial.candidate for trial in group)
        for (_, point), group in groupby(trials(SMALL.extent, 1), key=lambda trial: (trial.seed, trial.point))
        if point.graph is GraphKind.SNB
    }
    assert len(orders) == 2  # each time in another order


def test_graphs_of_all_seeds_lie_side_by_side() -> None:
    model = make_model(SMALL)
    assert set(model.subgraphs) == {(kind, seed) for kind in GraphKind for seed in (1, 2)}
    firsts = sorted(subgraph.first for subgraph in model.subgraphs.values())
    sizes = {subgraph.first: len(subgraph.degrees) for subgraph in model.subgraphs.values()}
    assert all(one + sizes[one] == other for one, other in pairwise(firsts))
    assert firsts[-1] + sizes[firsts[-1]] == model.graph.persons
    # No edge leads from one to another.
    places = np.searchsorted(firsts, model.graph.sources, side="right")
    assert (places == np.searchsorted(firsts, model.graph.targets, side="right")).all()
    for subgraph in model.subgraphs.values():
        own = model.graph.degrees[subgraph.first : subgraph.first + len(subgraph.degrees)]
        assert own.tolist() == subgraph.degrees.tolist()


def test_keys_are_distinct_persons_who_know_someone() -> None:
    subgraph = make_model(SMALL).subgraphs[GraphKind.RMAT, 2]
    keys = keys_of(subgraph, 30, seed=2)
    persons = [key.params["person_id"] for key in keys]
    assert len(set(persons)) == 30
    assert all(key.degree == subgraph.degrees[key.params["person_id"] - subgraph.first] > 0 for key in keys)
    assert Counter(key.kind for key in keys) == dict.fromkeys(Kind, 10)
    assert all(
        key.params["other_id"] != key.params["person_id"] for key in keys if key.kind is Kind.SHORTEST_PATH
    )  # fmt: skip
    by_degree, evenly = shares(keys, Skew.BY_DEGREE), shares(keys, Skew.EVENLY)
    assert by_degree.sum() == pytest.approx(1)
    assert evenly.tolist() == pytest.approx([1 / 30] * 30)
    assert by_degree[0] / by_degree[1] == pytest.approx(keys[0].degree / keys[1].degree)


@pytest.mark.parametrize(
    ("rate", "beta_delta"), [(2.0, 0.0), (0.5, 0.05), (8.0, 0.05), (8.0, 0.25), (40.0, 0.05), (40.0, 0.25)]
)
def test_a_trial_begins_as_a_long_run_goes_on(rate: float, beta_delta: float) -> None:
    """Against a run of one key over many expiries: how long it is expired, and how old on the average."""
    ttl_seconds, rng = 2.0, np.random.default_rng(5)
    fresh_integral = overdue_seconds = total = 0.0
    for _ in range(1_500):
        lead = early_lead(rng, rate, beta_delta, ttl_seconds)
        late = rng.exponential(1 / rate) if lead == 0.0 else 0.0
        fresh_integral += (ttl_seconds**2 - lead**2) / 2
        overdue_seconds += late
        total += ttl_seconds - lead + late
    drawn = remaining_seconds(
        rng, ttl_seconds=ttl_seconds, beta_deltas=np.full(20_000, beta_delta), rates=np.full(20_000, rate)
    )
    fresh = drawn[drawn > 0]
    assert (drawn <= 0).mean() == pytest.approx(overdue_seconds / total, abs=0.02)
    assert fresh.mean() == pytest.approx(fresh_integral / (total - overdue_seconds), rel=0.06)


def early_lead(rng: np.random.Generator, rate: float, beta_delta: float, ttl_seconds: float) -> float:
    """Play one life of an entry, read by read; return how early it was refreshed, 0.0 if it was not."""
    left = ttl_seconds
    while (left := left - rng.exponential(1 / rate)) > 0:
        if beta_delta and min(-beta_delta * np.log(1 - rng.random()), ttl_seconds / 2) >= left:
            return float(left)
    return 0.0


def test_an_open_loop_counts_from_when_a_read_was_due() -> None:
    """One read holds up the whole loop; those that were due meanwhile are as late as they are."""
    blocked: list[int] = []

    async def read(number: int) -> Served:
        if not blocked:
            blocked.append(number)
            time.sleep(0.3)  # noqa: ASYNC251 - the loop stands still, as in a pause of the whole process
        return Served.FRESH

    async def run() -> list[float]:
        forty = chain(repeat(1.0, 40), [1e9])  # one every 10 ms, and then none for long
        reads = await run_traffic(read, repeat(1), forty, Load(reads_per_second=100), time.monotonic() + 3_600)
        return [one.done - one.due for one in reads]

    late = asyncio.run(run())
    assert len(late) == 40  # none is left out
    assert sum(seconds > 0.1 for seconds in late) >= 19  # those due in the first 200 ms of the stand-still


def test_how_sure_and_how_shown() -> None:
    assert confidence(1) == 0
    assert confidence(5) == 0.9375
    assert [compact(value) for value in (1783.4, 88.123, 0.0412, 0.0)] == ["1,783", "88.1", "0.0412", "0"]
    assert str(spread_of([1.0, 3.0, 2.0])) == "2 (1–3)"
    assert str(spread_of([2.0, 2.0])) == "2"
    assert str(spread_of([float("nan"), 2.0, 1.0, 1.5])) == "1.5 (1–2)"
    assert str(spread_of([float("nan")])) == "–"


def test_trials_without_a_read_are_no_reason_to_lose_a_run() -> None:
    nan = float("nan")
    for of in (1, 3):  # every cell, every third
        found = [
            outcome(trial, times_ms=(), waited=nan, stale=nan, lead_times=()) if number % of == 0 else outcome(trial)
            for number, trial in enumerate(trials(SMALL.extent, 1))
        ]
        results = results_of(found, SMALL)
        drawn = [series for result in results for plot in result.charts for series in plot.series]
        assert all(map(math.isfinite, (y for series in drawn for y in (*series.y, *series.low, *series.high))))
        assert kept({"benchmark": "topology"}, results).results


def test_ratios_are_within_a_seed() -> None:
    first, second, *_ = trials(SMALL.extent, 1)
    slow = [outcome(Trial(first.point, first.candidate, seed), times_ms=(10.0 * seed,)) for seed in (1, 2)]
    fast = [outcome(Trial(second.point, second.candidate, seed), times_ms=(5.0**seed,)) for seed in (2, 1)]
    assert Measured(tuple(slow)).ratios(Measured(tuple(fast)), p95_ms) == [2.0, 0.8]
    for empty in ((0.0,), ()):  # nothing to divide by; no read at all
        nothing = [outcome(Trial(first.point, first.candidate, 1), times_ms=empty)]
        assert Measured(tuple(slow[:1])).ratios(Measured(tuple(nothing)), p95_ms) == []
    assert Measured(tuple(nothing)).ratios(Measured(tuple(slow)), p95_ms) == []


def test_lead_times_are_by_powers_of_two() -> None:
    trial = Trial(base(GraphKind.RMAT, SMALL.extent), Candidate(Setting.WORKERS, Mode.PLAIN), 1)
    found = lead_times_ms(
        [outcome(trial, lead_times=(LeadTime(1, 0.1), LeadTime(7, 0.2), LeadTime(4, 0.3), LeadTime(8, 0.4)))],
        Setting.WORKERS,
        Mode.PLAIN,
    )
    assert found == {0: [100.0], 2: [200.0, 300.0], 3: [400.0]}
    assert lead_times_ms([outcome(trial)], Setting.OWN_PROCESS, Mode.PLAIN) == {}


def test_the_whole_grid_is_shown_and_a_broken_promise_is_seen() -> None:
    everything = [
        outcome(trial, waited=0.25 if (trial.candidate.setting, trial.seed) == (Setting.WORKERS, 2) else 0.0)
        for trial in trials(SMALL.extent, 1)
    ]
    rmat, snb = results_of(everything, SMALL)
    own_process, workers, ratios, *_ = rmat.tables
    assert len(workers.rows) == len(own_process.rows) == 2 * 3
    assert len(ratios.rows) == 2 * 2
    assert all(len(row) == len(table.columns) for table in (*rmat.tables, *snb.tables) for row in table.rows)
    promises = {figure.what: figure for figure in rmat.figures if figure.target}
    assert promises["workers: share of reads that waited, in the worst cell"].reached is False
    assert promises["errors, in the worst cell"].reached is True
    assert {plot.name for plot in rmat.charts} == {
        "topology-rmat-p95", "topology-rmat-beta-own-process",
        "topology-rmat-beta-workers", "topology-rmat-leads",
    }  # fmt: skip
