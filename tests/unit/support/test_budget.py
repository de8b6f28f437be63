"""When a tier is over its budget."""

from __future__ import annotations

import pytest

from tests.support.budget import BUDGET_SECONDS, TOLERANCE, Result

ALLOWED_SECONDS = TOLERANCE * BUDGET_SECONDS["check"]


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
