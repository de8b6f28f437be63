"""The files that `tests.support.tiers` names: each exists, and is named once. And who does more in `make test-long`."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest

from tests.support.budget import BUDGET_SECONDS, TOLERANCE, Result
from tests.support.tiers import APART, FIRST, TOGETHER, unit_of_work

ROOT = Path(__file__).parents[3]
ALLOWED_SECONDS = TOLERANCE * BUDGET_SECONDS["check"]


def test_each_file_that_the_tiers_name_exists() -> None:
    named = {*APART, *chain.from_iterable(FIRST), *chain.from_iterable(TOGETHER.values())}
    assert {path for path in named if not (ROOT / path).exists()} == set()


def test_files_that_share_a_server_are_one_unit_of_work_and_any_other_is_one_by_itself() -> None:
    shared = list(chain.from_iterable(TOGETHER.values()))
    assert len(shared) == len(set(shared))
    assert {unit_of_work(f"{path}::test_it[a::b]") for path in TOGETHER["neo4j"]} == {"neo4j"}
    assert unit_of_work("tests/acceptance/test_demo.py::test_it") == "tests/acceptance/test_demo.py"
    assert unit_of_work(f"{APART[0]}::test_it[a]") == f"{APART[0]}::test_it[a]"
    assert unit_of_work("tests/acceptance/test_demo.py::test_it[a]@alone") == "alone"


def test_each_file_whose_tests_do_more_when_long_has_marked_them() -> None:
    using = {path for path in (ROOT / "tests").rglob("test_*.py") if "import IS_LONG" in path.read_text("utf-8")}
    assert using
    assert {path for path in using if "pytest.mark.longer" not in path.read_text("utf-8")} == set()


@pytest.mark.parametrize(
    ("seconds", "others_share", "slowness", "fails"),
    [
        (ALLOWED_SECONDS - 1, 0.0, 1.0, False),
        (ALLOWED_SECONDS + 1, 0.0, 1.0, True),
        (ALLOWED_SECONDS + 1, 0.5, 1.0, False),
        (ALLOWED_SECONDS + 1, 0.0, 1.1, False),
        (1.1 * ALLOWED_SECONDS + 1, 0.0, 1.1, True),
    ],
)
def test_a_tier_fails_over_its_budget_on_a_quiet_machine_in_proportion_to_its_speed(
    seconds: float, others_share: float, slowness: float, fails: bool
) -> None:
    result = Result("check", seconds, others_share, slowness)
    assert result.fails is fails
