"""Pure policy, against precomputed tables."""

from __future__ import annotations

import math

import pytest

from api_client.protocol.entry import Smoothed
from refresher.flow import policy
from refresher.flow.policy import pause_seconds
from refresher.settings import RefreshMode

PLAIN, TOPOLOGY = RefreshMode.PLAIN, RefreshMode.TOPOLOGY_SENSITIVE


@pytest.mark.parametrize(
    ("degree", "multiplier"), [(0, 1.0), (1, 1.0), (2, 1.7), (10, 3.3), (50, 4.9), (100, 5.6), (500, 7.2)]
)
def test_a_hub_refreshes_earlier(degree: int, multiplier: float) -> None:
    assert policy.effective_beta(TOPOLOGY, 1.0, degree, 1.0) == pytest.approx(multiplier, abs=0.05)
    assert policy.effective_beta(TOPOLOGY, 0.5, degree, 3.0) == pytest.approx(multiplier * 1.5, abs=0.1)


@pytest.mark.parametrize("degree", [0, 1, 500])
def test_plain_mode_ignores_the_degree(degree: int) -> None:
    assert policy.effective_beta(PLAIN, 1.5, degree, 2.0) == 3.0


def test_a_query_s_own_beta_function_gets_all_inputs_and_replaces_the_mode_s() -> None:
    assert policy.effective_beta(TOPOLOGY, 1.5, 7, 2.0, lambda beta0, degree, sigma: beta0 + degree + sigma) == 10.5
    assert policy.effective_beta(PLAIN, 1.5, 0, 2.0, lambda *_: 0) == 0.0
    assert policy.effective_beta(PLAIN, 1.5, 0, 2.0, lambda *_: 1e9) == policy.MAX_BETA


def dividing(beta0: float, degree: int, _: float) -> float:
    return beta0 / degree


@pytest.mark.parametrize(
    "function",
    [
        lambda *_: -0.1, lambda *_: float("nan"), lambda *_: float("inf"), lambda *_: None, lambda *_: "2",
        lambda *_: 1j, lambda *_: 10**400, dividing, lambda: 1.0,
    ],
    ids=["negative", "nan", "inf", "none", "text", "complex", "huge", "raises", "other arguments"],
)  # fmt: skip
def test_a_beta_function_that_returns_no_valid_beta_is_a_value_error(function: policy.BetaFunction) -> None:
    with pytest.raises(ValueError, match="β function"):
        policy.effective_beta(PLAIN, 1.0, 0, 1.0, function)


@pytest.mark.parametrize(
    ("enabled", "ttl", "on"), [(True, 60.0, True), (True, 59.9, False), (True, 600.0, True), (False, 600.0, False)]
)
def test_early_refresh_is_off_if_disabled_or_below_the_minimum_ttl(enabled: bool, ttl: float, on: bool) -> None:
    assert policy.early_refresh_is_on(enabled=enabled, ttl_seconds=ttl, min_ttl_seconds=60.0) is on


def test_smoothing_is_that_of_rfc_6298() -> None:
    first = policy.smooth(None, 1.0)
    assert first == Smoothed(1.0, 0.5)
    second = policy.smooth(first, 2.0)
    assert second == Smoothed(0.875 * 1.0 + 0.125 * 2.0, 0.75 * 0.5 + 0.25 * 1.0)
    assert second == Smoothed(1.125, 0.625)
    # The deviation is from the mean as it was before: ¾·0.625 + ¼·|1.125 − 0.5|.
    assert policy.smooth(second, 0.5) == Smoothed(1.046875, 0.625)


@pytest.mark.parametrize(
    ("window", "samples", "delta", "kept"),
    [
        (1, (), (4.0, 0.0), ()),
        (1, (9.0,), (4.0, 0.0), ()),
        (3, (), (4.0, 0.0), (4.0,)),
        (3, (1.0, 1.0), (2.0, 4 / 3), (1.0, 1.0, 4.0)),
        (2, (9.0, 2.0), (3.0, 1.0), (2.0, 4.0)),
    ],
)
def test_delta_over_a_window_is_the_mean_of_the_last_samples(
    window: int, samples: tuple[float, ...], delta: tuple[float, float], kept: tuple[float, ...]
) -> None:
    estimated, keep = policy.estimate_delta(Smoothed(99.0, 99.0), samples, 4.0, window)
    assert (estimated.mean, estimated.deviation) == pytest.approx(delta)
    assert keep == kept


def test_without_a_window_delta_is_smoothed_and_keeps_no_samples() -> None:
    assert policy.estimate_delta(None, (1.0,), 4.0, 0) == (Smoothed(4.0, 2.0), ())
    assert policy.estimate_delta(Smoothed(1.0, 0.5), (), 2.0, 0)[0] == Smoothed(1.125, 0.625)


@pytest.mark.parametrize(
    ("run", "jitter", "expected"),
    [
        (None, 0.0, 5.0),
        (None, 0.05, 5.05),
        (Smoothed(0.1, 0.05), 0.0, 5.0),
        (Smoothed(1.0, 0.5), 0.0, 9.0),
        (Smoothed(2.0, 0.5), 0.05, 12.05),
        (Smoothed(20.0, 5.0), 0.05, 30.0),
    ],
)
def test_the_lease_time_is_learned_from_runs_between_minimum_and_budget(
    run: Smoothed | None, jitter: float, expected: float
) -> None:
    assert policy.lease_seconds(5.0, run, jitter, 30.0) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("attempt", "multiplier", "most"),
    [(1, 2, 1), (2, 2, 2), (3, 2, 4), (4, 2, 8), (5, 2, 15), (99, 2, 15), (3, 1, 1), (2, 10, 10), (3, 10, 15)],
)
def test_a_retry_pause_is_drawn_between_its_minimum_and_a_growing_bound(
    attempt: int, multiplier: float, most: float
) -> None:
    assert pause_seconds(attempt, multiplier, math.nextafter(1, 0)) == pytest.approx(most)
    assert pause_seconds(attempt, multiplier, 0.5) == pytest.approx(most / 2)
    assert pause_seconds(attempt, multiplier, 0.0) == 0.05
