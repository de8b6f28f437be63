"""The decision, compared with the formula: P(refresh at t before the soft expiry) = exp(−t / (βδ)), 0 beyond ttl/2."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from api_client.protocol.xfetch import cut_draw, lead_seconds, refresh_probability, should_refresh

DRAWS = 40_000
EXPIRY_US = 1_000_000_000_000
HEADER: dict[str, Any] = {"delta_seconds": 2.0, "beta": 1.5, "ttl_seconds": 60.0}


def decides(left_seconds: float, u: float, **changes: Any) -> bool:
    return should_refresh(EXPIRY_US - round(left_seconds * 1e6), EXPIRY_US, u=u, **(HEADER | changes))


def share(left_seconds: float, **changes: Any) -> float:
    draw = random.Random(20_261_121)  # noqa: S311 - no secret
    return sum(decides(left_seconds, 1.0 - draw.random(), **changes) for _ in range(DRAWS)) / DRAWS


@pytest.mark.parametrize(
    ("left_seconds", "expected"),
    [(0.03, 0.990), (1.0, 0.7165), (3.0, 0.3679), (6.0, 0.1353), (9.0, 0.0498), (15.0, 0.0067)],
)
def test_the_share_of_refreshes_is_the_formula_s_within_the_binomial_error(
    left_seconds: float, expected: float
) -> None:
    probability = math.exp(-left_seconds / 3.0)
    assert probability == pytest.approx(expected, abs=5e-4)
    error = math.sqrt(probability * (1 - probability) / DRAWS)
    assert abs(share(left_seconds) - probability) < 4 * error
    assert refresh_probability(left_seconds, **HEADER) == pytest.approx(probability)


@pytest.mark.parametrize("digits", [1, 2, 6])
def test_with_rounded_draws_the_share_of_refreshes_is_the_reported_probability(digits: int) -> None:
    probability = refresh_probability(3.0, draw_digits=digits, **HEADER)
    assert 0 <= math.exp(-1) - probability < 10**-digits
    error = math.sqrt(probability * (1 - probability) / DRAWS)
    assert abs(share(3.0, draw_digits=digits) - probability) < 4 * error


@pytest.mark.parametrize("left_seconds", [0.0, -1e-6, -1.0, -1e9])
@pytest.mark.parametrize("changes", [{}, {"beta": 0.0}, {"delta_seconds": 0.0}, {"ttl_seconds": 0.0}])
def test_from_the_soft_expiry_on_every_read_refreshes(left_seconds: float, changes: dict[str, float]) -> None:
    assert decides(left_seconds, 1.0, **changes)
    assert refresh_probability(left_seconds, **(HEADER | changes)) == 1.0


def test_before_half_of_the_ttl_nothing_refreshes_however_slow_the_load_is() -> None:
    slow = {"delta_seconds": 1_000.0, "ttl_seconds": 60.0}
    assert not decides(30.001, 5e-324, **slow)
    assert refresh_probability(30.001, **(HEADER | slow)) == 0.0
    assert decides(30.0, 5e-324, **slow)
    assert lead_seconds(1_000.0, 1.5, 60.0, 5e-324) == 30.0


@pytest.mark.parametrize("changes", [{"beta": 0.0}, {"delta_seconds": 0.0}])
def test_without_beta_or_delta_nothing_refreshes_early(changes: dict[str, float]) -> None:
    assert not decides(1e-6, 5e-324, **changes)
    assert refresh_probability(1e-6, **(HEADER | changes)) == 0.0


@pytest.mark.parametrize("digits", [1, 3, 15])
def test_digits_of_the_draw_bound_how_early_a_refresh_can_be(digits: int) -> None:
    most = 2.0 * 1.5 * digits * math.log(10)
    wide = {"ttl_seconds": 1e6, "draw_digits": digits}
    assert decides(most * 0.999, 5e-324, **wide)
    assert not decides(most * 1.001, 5e-324, **wide)
    assert refresh_probability(most * 1.001, **(HEADER | wide)) == 0.0


@pytest.mark.parametrize(
    ("u", "digits", "cut"),
    [(0.123456, 0, 0.123456), (0.123456, 2, 0.13), (0.5, 1, 0.5), (1e-300, 3, 0.001), (1.0, 1, 1.0), (0.91, 1, 1.0)],
)
def test_a_draw_is_rounded_up_and_never_to_zero(u: float, digits: int, cut: float) -> None:
    assert cut_draw(u, digits) == pytest.approx(cut)


@pytest.mark.parametrize("broken", ["delta_seconds", "beta", "ttl_seconds"])
def test_a_damaged_entry_is_not_refreshed_early_and_raises_no_error(broken: str) -> None:
    numbers = {"delta_seconds": 1.0, "beta": 1.0, "ttl_seconds": 60.0} | {broken: float("nan")}
    assert refresh_probability(5.0, **numbers, draw_digits=3) == 0.0
