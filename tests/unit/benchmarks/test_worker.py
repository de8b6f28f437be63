"""The worker's benchmark: what is made of what was timed."""

from __future__ import annotations

import pytest

from benchmarks.apparatus.statistics import Tally, Turn
from benchmarks.reports.results import Figure
from benchmarks.worker import duplicates, latency, rates
from benchmarks.worker.options import BrokerKind, Pool


def tally_of(seconds: dict[str, list[float]], count: int = 10) -> Tally:
    tally = Tally()
    for name, rounds in seconds.items():
        for number, taken in enumerate(rounds):
            tally.add(Turn(number, name), count, taken)
    return tally


def by_what(figures: list[Figure]) -> dict[tuple[str, str], tuple[float | None, float | None]]:
    return {(figure.what, figure.note): (figure.low, figure.high) for figure in figures}


def test_a_refresh_is_compared_with_a_no_op_task_of_the_same_round_and_events() -> None:
    # The first round warms up; the second of the no-op task is slow, as that of the refresh.
    seconds = {competitor.name: [9.0, 1.0, 10.0] for competitor in rates.COMPETITORS}
    seconds[rates.Competitor(rates.AT_ONCE, events=False).name] = [9.0, 2.0, 12.5]
    seconds[rates.Competitor(rates.NOTHING, events=True).name] = [9.0, 2.0, 20.0]
    figures = list(rates._figures(Pool.SOLO, tally_of(seconds)))
    found = by_what(figures)
    assert found["solo: a refresh, loaded at once, against a no-op task", "no events"] == (0.5, 0.8)
    assert found["solo: a refresh, loaded at once, against a no-op task", "events as by default"] == (2.0, 2.0)
    assert found["solo: a no-op task, events against none", ""] == (0.5, 0.5)
    assert [figure.target for figure in figures].count("≥ 0.6 ×") == 2


def test_each_competitor_has_a_row_in_each_pool() -> None:
    tallies = {pool: tally_of({one.name: [9.0, 0.5, 1.0] for one in rates.COMPETITORS}) for pool in Pool}
    rows = list(rates._rows(tallies))
    assert len(rows) == len(Pool) * len(rates.COMPETITORS)
    assert all(len(row) == len(rates.COLUMNS) for row in rows)
    plot = rates._plot("g", BrokerKind.REDIS, tallies)
    assert [series.x for series in plot.series] == [tuple(pool.value for pool in Pool)] * 3
    assert (plot.series[0].low, plot.series[0].y, plot.series[0].high) == ((10.0,) * 3, (15.0,) * 3, (20.0,) * 3)


def test_samples_of_the_warm_up_do_not_count() -> None:
    samples = latency.Samples()
    for number, seconds in ((0, 9.0), (1, 0.002), (1, 0.001), (2, 0.003)):
        samples.add("x", number, seconds)
    assert samples.percentiles_ms("x", 50) == pytest.approx((1.0, 3.0))
    assert samples.all_ms("x") == pytest.approx([1.0, 2.0, 3.0])


def test_a_peer_that_is_not_installed_has_no_figure_and_the_others_have() -> None:
    kinds = [kind for kind in duplicates._KINDS if kind is not duplicates.CeleryOnce]
    tally = tally_of({kind.title: [9.0, 0.001, 0.002] for kind in kinds})
    result = duplicates._result(tally, {kind.title: kind.note for kind in duplicates._KINDS})
    of_once = [figure for figure in result.figures if duplicates.CeleryOnce.title in figure.what]
    others = [figure for figure in result.figures if figure not in of_once]
    assert of_once
    assert all(figure.value is None for figure in of_once)
    assert all(figure.rounds == 2 for figure in others)
    assert len(result.tables[0].rows) == len(duplicates._KINDS)
