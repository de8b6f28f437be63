"""Pure functions: the refresh decision, the backoff, the policy, and the canonical text of a query's params."""

from __future__ import annotations

import json
import math
import unicodedata
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from api_client.errors import InvalidQuery
from api_client.protocol.entry import Smoothed
from api_client.protocol.keys import make_key
from api_client.protocol.params import MAX_PARAMS_BYTES, canonical_params
from api_client.protocol.xfetch import cut_draw, lead_seconds, refresh_probability, should_refresh
from refresher.flow import policy
from refresher.flow.policy import pause_seconds, whole_seconds
from refresher.settings import RefreshMode

draws = st.floats(0, 1, exclude_min=True)
digits = st.integers(0, 15)
durations = st.floats(1e-4, 1e6)
EXPIRY_US = 2_000_000_000_000_000


@pytest.mark.promise("Reading", "XFetch: P(refresh) = exp(−(time left)/(βδ)), and the lead is at most half the TTL")
@given(durations, durations, st.floats(0.01, 100), durations, draws, digits)
def test_a_read_refreshes_exactly_when_its_draw_is_within_the_probability(
    left: float, delta: float, beta: float, ttl: float, u: float, cut: int
) -> None:
    left_us = max(1, round(left * 1e6))
    header = {"delta_seconds": delta, "beta": beta, "ttl_seconds": ttl}
    decided = should_refresh(EXPIRY_US - left_us, EXPIRY_US, u=u, draw_digits=cut, **header)
    probability = refresh_probability(left_us / 1e6, **header)
    drawn = cut_draw(u, cut)
    assume(not math.isclose(drawn, probability, rel_tol=1e-6, abs_tol=1e-300))
    assume(not math.isclose(left_us / 1e6, ttl / 2, rel_tol=1e-6))
    assert decided == (drawn <= probability)


@given(st.integers(0, 2**63), st.integers(0, 2**63), st.floats(), st.floats(), st.floats(), draws, st.integers(0, 255))
def test_no_header_makes_the_decision_raise(
    now: int, expiry: int, delta: float, beta: float, ttl: float, u: float, cut: int
) -> None:
    decided = should_refresh(now, expiry, delta_seconds=delta, beta=beta, ttl_seconds=ttl, u=u, draw_digits=cut)
    assert decided or now < expiry


@given(durations, st.floats(0, 100), durations, draws)
def test_a_lead_is_between_zero_and_half_the_ttl(delta: float, beta: float, ttl: float, u: float) -> None:
    assert 0 <= lead_seconds(delta, beta, ttl, u) <= ttl / 2


@given(durations, durations, st.floats(0.01, 100), durations, digits, st.floats(1.0, 10.0))
def test_the_probability_grows_with_delta_beta_and_time(
    left: float, delta: float, beta: float, ttl: float, cut: int, factor: float
) -> None:
    def probability(left: float, delta: float, beta: float) -> float:
        return refresh_probability(left, delta_seconds=delta, beta=beta, ttl_seconds=ttl, draw_digits=cut)

    base = probability(left, delta, beta)
    assert 0 <= base <= 1
    assert probability(left, delta * factor, beta) >= base
    assert probability(left, delta, beta * factor) >= base
    assert probability(left / factor, delta, beta) >= base


@given(draws, st.integers(1, 15))
def test_a_cut_draw_lies_within_one_step_above(u: float, cut: int) -> None:
    drawn = cut_draw(u, cut)
    assert u <= drawn * (1 + 1e-12)
    assert drawn <= u + 10.0**-cut * (1 + 1e-6)
    assert 10.0**-cut <= drawn * (1 + 1e-12) <= 1 + 1e-12


@given(st.integers(1, 10**9), st.floats(1, 100), st.floats(0, 1, exclude_max=True))
def test_a_pause_is_between_50_ms_and_its_bound_and_at_most_15_s(attempt: int, multiplier: float, u: float) -> None:
    pause = pause_seconds(attempt, multiplier, u)
    assert 0.05 <= pause <= 15.0
    assert pause <= max(0.05, multiplier ** min(attempt - 1, 64))
    assert pause_seconds(attempt + 1, multiplier, u) >= pause
    assert pause <= whole_seconds(pause) <= 15 or pause < 1
    assert whole_seconds(pause) in range(1, 16)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.integers(0, 64))
def test_a_smoothed_mean_lies_within_the_measured_values(samples: list[float], window: int) -> None:
    delta, kept = None, ()
    for sample in samples:
        delta, kept = policy.estimate_delta(delta, kept, sample, window)
        assert len(kept) <= window
    seen = samples[-window:] if window else samples
    assert min(seen) * (1 - 1e-9) <= delta.mean <= max(seen) * (1 + 1e-9)
    assert 0 <= delta.deviation <= max(samples) + 1e-9


@given(st.floats(0.001, 3600), st.none() | st.builds(Smoothed, durations, durations), st.floats(0, 3600), durations)
def test_a_lease_is_positive_and_within_the_budget(
    floor: float, run: Smoothed | None, jitter: float, budget: float
) -> None:
    assert 0 < policy.lease_seconds(floor, run, jitter, budget) <= budget


@given(st.sampled_from(RefreshMode), st.floats(1e-3, 1000), st.integers(0, 2**32), st.floats(1e-3, 1000))
def test_beta_is_finite_and_no_degree_lowers_it(mode: RefreshMode, beta0: float, degree: int, sigma: float) -> None:
    beta = policy.effective_beta(mode, beta0, degree, sigma)
    assert 0 < beta <= policy.MAX_BETA
    assert beta >= min(beta0 * sigma, policy.MAX_BETA)


scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=20)
scalars |= st.floats(allow_nan=False, allow_infinity=False)
json_like = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
)
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,10}", fullmatch=True)


def has_twins(value: Any) -> bool:
    """Return whether two keys become equal by normalisation."""
    if isinstance(value, dict):
        return len({unicodedata.normalize("NFC", key) for key in value}) < len(value) or any(
            map(has_twins, value.values())
        )
    return isinstance(value, list) and any(map(has_twins, value))


class Odd:
    def __repr__(self) -> str:
        raise ValueError("no repr")

    __str__ = __repr__


def huge(sign: int) -> int:
    """Return an int of more digits than Python converts to text."""
    return sign * 10**5000


anything = st.recursive(
    scalars | st.floats() | st.integers() | st.binary() | st.complex_numbers() | st.builds(object) | st.builds(Odd)
    | st.text(st.characters()) | st.sampled_from(["\ud800", ...]) | st.sampled_from([1, -1]).map(huge),
    lambda inner: st.lists(inner, max_size=3)
    | st.frozensets(st.integers(), max_size=2)
    | st.dictionaries(st.text(max_size=3) | st.integers() | st.binary() | st.builds(Odd), inner, max_size=3),
)  # fmt: skip


@given(anything | st.dictionaries(names | st.text() | st.integers() | st.builds(Odd), anything, max_size=3))
def test_arbitrary_objects_have_a_canonical_text_or_are_an_invalid_query(value: Any) -> None:
    try:
        text = canonical_params("q", value)
    except InvalidQuery as error:
        str(error).encode()
        text = "{}"
    assert len(text.encode()) <= MAX_PARAMS_BYTES
    json.loads(text)


@given(anything, anything)
def test_arbitrary_names_and_versions_make_a_key_or_are_an_invalid_query(name: Any, version: Any) -> None:
    try:
        assert make_key("ns", name, None, version).query == name
    except InvalidQuery as error:
        str(error).encode()
