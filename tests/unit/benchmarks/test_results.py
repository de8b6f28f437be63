"""Results of benchmarks: medians, ratios and targets, and what is saved of them."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

from benchmarks.apparatus.statistics import Tally, Turn, percentile
from benchmarks.hits.options import HitsOptions
from benchmarks.reports.charts import Plot, Series
from benchmarks.reports.kept import kept, load_all, save
from benchmarks.reports.page import page
from benchmarks.reports.provenance import at_end, provenance
from benchmarks.reports.results import Must, Result, Table, Target, figure, rate

CHART = Plot("over-time", "Recomputes", "time (s)", "recomputes", (
    Series("fetch", (0.0, 1.0, 2.0), (0.0, 40.0, 80.0)), Series("ours", (0.0, 1.0, 2.0), (0.0, 1.0, 2.0)),
), caption="Less is better.", ours=("ours",))  # fmt: skip
RESULT = Result(
    "b", "B's scenario",
    [
        figure("misses", (0.0, 2.0), "", Target(Must.BE, 0), is_worst=True), figure("none", ()),
        figure("ratio", (0.5, 1.0, 3.5), target=Target(Must.AT_MOST, 1.2)),
    ],
    [rate("ours", (1e-5, 3e-5, 2e-5), (2.0,), (1.0,)), rate("peer", note="not installed: a|b")],
    [Table("what each did", ("strategy", "p99_ms", "errors"), (("ours", 1.23456789, 0), ("peer", None, math.nan)))],
    [CHART],
)  # fmt: skip


def saved(folder: Path, name: str = "stampede") -> Path:
    folder.mkdir(exist_ok=True)
    about = provenance(name, HitsOptions(quick=True, seed=7), rounds=2, servers={"redis-server": "7.0"}, more={})
    return save(kept(at_end(about), [RESULT]), folder)


def chance(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - an order of turns is no secret


def test_a_ratio_compares_within_a_round_and_the_warm_up_does_not_count() -> None:
    tally = Tally()
    for number, seconds in enumerate([100.0, 1.0, 3.0]):
        tally.add(Turn(number, "slow"), 10, seconds)
        tally.add(Turn(number, "fast"), 20, seconds)
    assert tally.seconds_per_read("slow") == [0.1, 0.3]
    assert tally.speed_ratios("fast", "slow") == pytest.approx([2.0, 2.0])


@pytest.mark.parametrize(("percent", "expected"), [(0, 1), (50, 50), (99, 99), (100, 100)])
def test_a_percentile_is_the_nearest_rank(percent: float, expected: float) -> None:
    values = [float(value) for value in range(1, 101)]
    chance(0).shuffle(values)
    assert percentile(values, percent) == expected


@pytest.mark.parametrize(
    ("must", "reached"),
    [(Must.AT_LEAST, [False, True, True]), (Must.MORE_THAN, [False, False, True]), (Must.AT_MOST, [True, True, False]),
     (Must.BE, [False, True, False])],
)  # fmt: skip
def test_a_target_is_compared_by_its_own_operator(must: Must, reached: list[bool]) -> None:
    target = Target(must, 2.0)
    assert [figure("w", (value,), target=target).reached for value in (1.9, 2.0, 2.1)] == reached
    assert figure("w", (), target=target).reached is None
    assert figure("w", (1.0,)).reached is None


@pytest.mark.parametrize("recomputes", [(1.0, 1.0, 2.0), (1.0, 1.0, 0.0)])
def test_a_promise_is_evaluated_by_its_worst_round_and_a_speed_by_the_median(recomputes: tuple[float, ...]) -> None:
    assert figure("w", recomputes, target=Target(Must.BE, 1), is_worst=True).reached is False
    assert figure("w", recomputes, target=Target(Must.BE, 1)).reached is True


def test_a_saved_result_has_medians_spreads_and_provenance(tmp_path: Path) -> None:
    path = saved(tmp_path)
    content = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert {"commit", "rounds", "seed", "load", "machine", "versions", "options"} <= set(content["provenance"])
    assert set(content["provenance"]["load"]) == {"before", "after"}
    (result,) = content["results"]
    assert result["rates"] == [
        {"competitor": "ours", "us_per_read": 20.0, "low": 10.0, "high": 30.0, "of_baseline": 2.0, "ours_of_it": 1.0},
        {"competitor": "peer", "note": "not installed: a|b"},
    ]
    assert result["figures"][0] == {
        "what": "misses", "value": 2.0, "low": 0.0, "high": 2.0, "rounds": 2, "target": "= 0", "reached": False,
    }  # fmt: skip
    assert result["tables"][0]["rows"][0] == ["ours", 1.23457, 0]
    assert result["tables"][0]["rows"][1] == ["peer", None, None]
    assert len(path.read_text().splitlines()) < 40


def test_the_results_page_shows_all_that_was_saved(tmp_path: Path) -> None:
    saved(tmp_path)
    made = page(load_all(tmp_path), "results")
    assert "## stampede" in made
    assert "seed 7" in made
    assert "a quick run: it shows that all works" in made
    assert "| misses | 2.00 | 0 – 2.00 | = 0 | NO |\n" in made
    assert "| ratio | 1.00 × | 0.500 – 3.50 | ≤ 1.2 × | median only |\n" in made
    assert "| peer | – | – | – | not installed: a\\|b |" in made
    assert "| ours | 1.23 | 0 |" in made
    assert "![Recomputes](results/over-time.svg)\n\nLess is better." in made


def test_columns_equal_in_every_row_are_shown_above_and_a_long_table_stays_in_the_json() -> None:
    rows = [("fetch", 3, 0), ("locked", 1, 0), ("ours", 1, 0)]
    columns = ("strategy", "recomputes", "errors")
    tables = [Table("short", columns, rows), Table("long", columns, rows * 9)]
    about = provenance("stampede", HitsOptions(), rounds=1, servers={}, more={})
    made = page([kept(at_end(about), [Result("b", "B", tables=tables)])], "results")
    assert "short. In every row: errors 0\n\n| strategy | recomputes |\n" in made
    assert "long: 27 rows, in [stampede.json](../../../benchmarks/results/stampede.json)." in made
