"""Bars of values a round."""

from __future__ import annotations

from benchmarks.bars import bars, reads_a_second
from benchmarks.figures import Rate
from benchmarks.plots import PlotKind, Series


def test_a_bar_is_the_median_with_the_least_and_the_greatest_round() -> None:
    plot = bars("name", "title", "ms", {"p50": {"a": [3.0, 1.0, 2.0], "b": [5.0]}}, x_label="place")
    assert (plot.kind, plot.x_label, plot.y_label) == (PlotKind.BARS, "place", "ms")
    assert plot.series == (Series("p50", ("a", "b"), (2.0, 5.0), (1.0, 5.0), (3.0, 5.0)),)


def test_who_was_left_out_has_no_bar() -> None:
    rates = [Rate("g", "one", seconds_a_read=(0.5, 0.25, 0.125)), Rate("g", "other", note="not installed")]
    assert reads_a_second("name", "title", rates).series == (
        Series("reads a second", ("one",), (4.0,), (2.0,), (8.0,)),
    )
