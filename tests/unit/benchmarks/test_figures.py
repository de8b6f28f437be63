"""What benchmarks make of their rounds, and how they keep it: a wrong median or a lost row would be believed."""

from __future__ import annotations

import csv
import json
import math
import random
from collections import Counter
from pathlib import Path

import pytest

from api_client.protocol import payload
from benchmarks.errors import BenchError
from benchmarks.figures import Figure, Must, Rate, Result, Target
from benchmarks.herd.herd import Outcome
from benchmarks.herd.readers import Read
from benchmarks.hits.groups import GROUPS, chosen
from benchmarks.options import BenchOptions
from benchmarks.payloads import PayloadKind, value_of
from benchmarks.report import FIGURE_COLUMNS, RATE_COLUMNS, write
from benchmarks.statistics import Tally, Turn, percentile, turns


def chance(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - an order of turns is no secret


def test_everyone_has_the_same_turns_in_each_round_in_an_order_that_the_seed_decides() -> None:
    names = ("a", "b", "c")
    taken = list(turns(names, rounds=2, slices=4, rng=chance(1)))
    assert Counter(taken) == {Turn(number, name): 4 for number in range(3) for name in names}
    assert [turn.round for turn in taken] == sorted(turn.round for turn in taken)
    assert taken == list(turns(names, rounds=2, slices=4, rng=chance(1)))
    assert taken != list(turns(names, rounds=2, slices=4, rng=chance(2)))


def test_a_ratio_compares_within_a_round_and_the_warm_up_does_not_count() -> None:
    tally = Tally()
    for number, seconds in enumerate([100.0, 1.0, 3.0]):
        tally.add(Turn(number, "slow"), 10, seconds)
        tally.add(Turn(number, "fast"), 20, seconds)
    assert tally.seconds_a_read("slow") == [0.1, 0.3]
    assert tally.times_as_fast("fast", "slow") == pytest.approx([2.0, 2.0])


@pytest.mark.parametrize(("percent", "expected"), [(0, 1), (50, 50), (99, 99), (100, 100)])
def test_a_percentile_is_the_nearest_rank(percent: float, expected: float) -> None:
    values = [float(value) for value in range(1, 101)]
    chance(0).shuffle(values)
    assert percentile(values, percent) == expected


def test_percentiles_and_figures_of_nothing_are_no_number() -> None:
    assert math.isnan(percentile([], 99))
    assert math.isnan(Figure("g", "what", ()).value)


@pytest.mark.parametrize(
    ("must", "reached"),
    [(Must.AT_LEAST, [False, True, True]), (Must.MORE_THAN, [False, False, True]), (Must.AT_MOST, [True, True, False]),
     (Must.BE, [False, True, False])],
)  # fmt: skip
def test_a_target_is_compared_as_it_says(must: Must, reached: list[bool]) -> None:
    target = Target(must, 2.0)
    assert [Figure("g", "w", (value,), target=target).reached for value in (1.9, 2.0, 2.1)] == reached


def test_without_a_figure_or_a_target_nothing_is_reached_or_missed() -> None:
    assert Figure("g", "w", (), target=Target(Must.AT_MOST, 1)).reached is None
    assert Figure("g", "w", (1.0,)).reached is None


@pytest.mark.parametrize("recomputes", [(1.0, 1.0, 2.0), (1.0, 1.0, 0.0)])
def test_a_promise_is_judged_by_its_worst_round_and_a_speed_by_the_median(recomputes: tuple[float, ...]) -> None:
    assert Figure("g", "w", recomputes, target=Target(Must.BE, 1), is_worst=True).reached is False
    assert Figure("g", "w", recomputes, target=Target(Must.BE, 1)).reached is True


def test_an_outcome_counts_errors_and_time_from_the_common_start() -> None:
    outcome = Outcome([Read(0.010, 0.020, ""), Read(0.5, 0.001, "WaitTimeout")], recomputes=1)
    assert outcome.errors == {"WaitTimeout": 1}
    assert outcome.percentile_ms(99) == pytest.approx(20)
    assert outcome.percentile_ms(99, from_start=True) == pytest.approx(501)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_json_and_csv_have_every_row_and_no_nan(tmp_path: Path) -> None:
    results = [
        Result(
            "g",
            "title",
            (Rate("g", "ours", (1e-5, 3e-5), (2.0,), (1.0,)), Rate("g", "peer", note="not installed: peer")),
            (Figure("g", "ratio", (2.0, 4.0), target=Target(Must.AT_LEAST, 1.1)), Figure("g", "none", ())),
        )
    ]
    write(tmp_path / "new" / "folder", {"benchmark": "hits", "seed": 1}, results)
    folder = tmp_path / "new" / "folder"
    content = json.loads((folder / "hits.json").read_text(), parse_constant=pytest.fail)
    assert content["seed"] == 1
    assert [figure["value"] for figure in content["results"][0]["figures"]] == [3.0, None]
    rates = rows_of(folder / "rates.csv")
    assert [(row["contender"], row["us_per_read"], row["note"]) for row in rates] == [
        ("ours", "20", ""),
        ("peer", "", "not installed: peer"),
    ]
    figures = rows_of(folder / "figures.csv")
    assert [(row["value"], row["target"], row["reached"]) for row in figures] == [("3", "≥ 1.1 ×", "yes"), ("", "", "")]
    assert (tuple(rates[0]), tuple(figures[0])) == (RATE_COLUMNS, FIGURE_COLUMNS)


@pytest.mark.parametrize("kind", PayloadKind)
def test_values_take_a_kibibyte_and_differ_by_number(kind: PayloadKind) -> None:
    make = value_of(kind)
    sizes = {len(payload.encode(make(number))) for number in (0, 1, 63, 999_999)}
    assert len(sizes) == 1
    assert abs(sizes.pop() - 1_024) < 16
    assert make(1) != make(2)
    assert make(1) == make(1)


def test_groups_are_chosen_by_name_and_the_long_ones_only_when_asked_for() -> None:
    everything = [group.name for group in GROUPS]
    assert len(set(everything)) == len(everything)
    assert [group.name for group in chosen(BenchOptions(full=True))] == everything
    assert [group.name for group in chosen(BenchOptions(quick=True))] == everything
    assert "million" not in [group.name for group in chosen(BenchOptions())]
    assert [group.name for group in chosen(BenchOptions(only=("million", "sync-1")))] == ["sync-1", "million"]
    with pytest.raises(BenchError, match="no group 'sync'; there are sync-1, "):
        chosen(BenchOptions(only=("sync",)))
