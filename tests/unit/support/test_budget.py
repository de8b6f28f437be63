from __future__ import annotations

from collections import Counter

import pytest

from tests.support.budget import BUDGET_SECONDS, MAX_OTHERS_SHARE, Result, Usage

BEFORE = Usage(available=1_000.0, busy=400.0, own=10.0)
FILES = Counter({"tests/short.py": 1.0, "tests/long.py": 500.0})
OVER = BUDGET_SECONDS["test"] + 1.0


@pytest.mark.parametrize(
    ("busy", "own", "share"),
    [
        (0.0, 0.0, 0.0),  # nothing ran
        (80.0, 80.0, 0.0),  # this run alone
        (80.0, 30.0, 0.5),
        (100.0, 0.0, 1.0),
        (30.0, 30.5, 0.0),  # two clocks that do not tick together
    ],
)
def test_what_others_used_is_what_this_run_did_not(busy: float, own: float, share: float) -> None:
    after = Usage(BEFORE.available + 100.0, BEFORE.busy + busy, BEFORE.own + own)
    assert after.others_share(BEFORE) == share


def test_a_reading_without_time_between_is_quiet() -> None:
    assert BEFORE.others_share(BEFORE) == 0


def test_this_machine_can_be_read() -> None:
    first, second = Usage.now(), Usage.now()
    assert 0 <= first.busy <= first.available
    assert second.own >= first.own > 0


@pytest.mark.parametrize(
    ("tier", "seconds", "others", "fails"),
    [
        ("test", OVER, 0.0, True),
        ("test", OVER, MAX_OTHERS_SHARE, True),
        ("test", OVER, MAX_OTHERS_SHARE + 0.01, False),
        ("test", OVER - 1, 0.0, False),
        ("long", 100_000.0, 0.0, False),
    ],
)
def test_a_tier_fails_by_its_budget_on_a_quiet_machine_alone(
    tier: str, seconds: float, others: float, fails: bool
) -> None:
    assert Result(tier, seconds, others).fails is fails


def test_the_report_names_the_files_that_took_longest_and_whose_fault_it_is() -> None:
    kept, exceeded, disturbed = (
        list(result.lines(FILES))
        for result in (Result("test", 20.0, 0.0), Result("test", OVER, 0.0), Result("test", OVER, 0.4))
    )
    files = ["   500.0  tests/long.py", "     1.0  tests/short.py"]
    assert kept == ["tier test: 20 s of 300 s", *files]
    assert exceeded[1].startswith("the budget is exceeded")
    assert "others used 40% of the processors" in disturbed[1]
    assert exceeded[2:] == disturbed[2:] == files
    assert next(Result("long", 9.0, 0.0).lines(FILES)) == "tier long: 9 s"
