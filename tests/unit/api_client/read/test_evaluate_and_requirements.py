"""Evaluation of an entry's bytes: does it satisfy the read, should it trigger; and the validation of options."""

from __future__ import annotations

from typing import Any

import pytest

from api_client.errors import InvalidQuery
from api_client.protocol.entry import Flag, Header, encode
from api_client.protocol.messages import RefreshReason
from api_client.read.evaluate import ANY, Freshness, evaluate
from api_client.read.requirements import parse_bookmarks, parse_duration, parse_freshness
from tests.support.lease_world import a_header

DIGEST = bytes(16)
NOW_US = 1_800_000_000_000_000
SECOND = 1_000_000


def an_entry(**changes: Any) -> Header:
    """Loaded 100 s ago, fresh for 200 s more, δ = 1 s."""
    fields = {
        "read_started_us": NOW_US - 100 * SECOND, "soft_expiry_us": NOW_US + 200 * SECOND, "ttl_seconds": 300.0,
    }  # fmt: skip
    return a_header(50, **(fields | changes))


def evaluated(
    freshness: Freshness = ANY, *, u: float = 1.0, stamp: int | None = None, **changes: Any
) -> tuple[bool, Any]:
    verdict = evaluate(encode(an_entry(**changes), DIGEST, b""), DIGEST, freshness, now_us=NOW_US, u=u, stamp=stamp)
    assert verdict.seen_token == 50
    return verdict.satisfies, verdict.trigger


# Stored 1 s after now: clocks may differ by that much; and 1 µs more: one of them has been set.
AHEAD, FARTHER_AHEAD = (
    {"read_started_us": at_us, "soft_expiry_us": at_us + 300 * SECOND}
    for at_us in (NOW_US + SECOND, NOW_US + SECOND + 1)
)
MISS, EARLY, STALE, INVALIDATED = (
    RefreshReason.MISS,
    RefreshReason.EARLY,
    RefreshReason.STALE,
    RefreshReason.INVALIDATED,
)


@pytest.mark.parametrize(
    ("freshness", "stamp", "changes", "verdict"),
    [
        (ANY, None, {}, (True, None)),
        (ANY, None, {"soft_expiry_us": NOW_US}, (True, STALE)),
        (ANY, None, {"soft_expiry_us": NOW_US - 1}, (True, STALE)),
        (ANY, None, {"soft_expiry_us": NOW_US + 1}, (True, None)),
        (ANY, None, AHEAD, (True, None)),
        (ANY, None, FARTHER_AHEAD, (True, STALE)),
        (Freshness(max_age_seconds=0.0), None, AHEAD, (True, None)),
        (Freshness(max_age_seconds=1e9), None, FARTHER_AHEAD, (False, MISS)),
        (Freshness(max_age_seconds=1e9), 49, FARTHER_AHEAD, (True, STALE)),
        (ANY, None, {"soft_expiry_us": NOW_US - 1, "generation": 51}, (True, INVALIDATED)),
        (ANY, None, {"soft_expiry_us": NOW_US - 1, "generation": 50}, (True, STALE)),
        # The reader's clock is behind Redis', which stamped the invalidation.
        (ANY, None, {"soft_expiry_us": NOW_US + 5_000, "generation": 51}, (True, INVALIDATED)),
        (ANY, None, {"soft_expiry_us": NOW_US + 5_000, "generation": 49}, (True, None)),
        (ANY, None, {"flags": Flag.HANDOFF}, (False, MISS)),
        (ANY, 49, {"flags": Flag.HANDOFF, "soft_expiry_us": NOW_US}, (True, None)),
        (ANY, 50, {"flags": Flag.HANDOFF}, (False, MISS)),
        (Freshness(max_age_seconds=100.0), None, {}, (True, None)),
        (Freshness(max_age_seconds=99.999), None, {}, (False, MISS)),
        (Freshness(max_age_seconds=0.0), 49, {}, (True, None)),
        (Freshness(max_age_seconds=0.0), 50, {}, (False, MISS)),
        (Freshness(fresh=True), None, {}, (False, MISS)),
        (Freshness(fresh=True), 50, {}, (False, MISS)),
        (Freshness(fresh=True), 49, {}, (True, None)),
        (Freshness(min_generation=49), None, {}, (True, None)),
        (Freshness(min_generation=50), None, {}, (False, MISS)),
        (Freshness(min_generation=50), 50, {}, (False, MISS)),
        (Freshness(min_generation=50), 49, {}, (True, None)),
        (Freshness(min_bookmarks=frozenset({"b1"})), None, {}, (False, MISS)),
        (Freshness(min_bookmarks=frozenset({"b1"})), 1, {}, (False, MISS)),
        (Freshness(min_bookmarks=frozenset({"b1"})), None, {"bookmarks": ("b0", "b1")}, (True, None)),
        (Freshness(min_bookmarks=frozenset({"b1", "b2"})), None, {"bookmarks": ("b1",)}, (False, MISS)),
    ],
)
def test_an_entry_is_evaluated_against_the_freshness_requirement(
    freshness: Freshness, stamp: int | None, changes: dict[str, Any], verdict: tuple[bool, Any]
) -> None:
    assert evaluated(freshness, stamp=stamp, **changes) == verdict


@pytest.mark.parametrize(
    ("changes", "stale"),
    [
        ({"soft_expiry_us": NOW_US + 1}, False),
        ({"soft_expiry_us": NOW_US}, True),
        ({"soft_expiry_us": NOW_US + 5_000, "generation": 51}, True),
    ],
)
def test_a_stale_entry_has_no_time_left(changes: dict[str, Any], stale: bool) -> None:
    header = an_entry(**changes)
    assert (header.is_stale(NOW_US), header.left_seconds(NOW_US) <= 0) == (stale, stale)


@pytest.mark.parametrize(
    ("changes", "u", "trigger"),
    [
        ({"soft_expiry_us": NOW_US + 2 * SECOND}, 0.9, None),
        ({"soft_expiry_us": NOW_US + 2 * SECOND}, 1e-3, EARLY),
        ({"soft_expiry_us": NOW_US + 2 * SECOND, "beta": 0.0}, 1e-3, None),
        ({"soft_expiry_us": NOW_US + 2 * SECOND, "draw_digits": 1}, 1e-3, None),
        ({"soft_expiry_us": NOW_US + 2 * SECOND, "ttl_seconds": 3.0}, 1e-9, None),
    ],
)
def test_the_early_refresh_decision_uses_all_fields_of_the_header(
    changes: dict[str, Any], u: float, trigger: Any
) -> None:
    assert evaluated(u=u, **changes) == (True, trigger)


def test_an_absent_entry_is_a_miss() -> None:
    verdict = evaluate(None, DIGEST, ANY, now_us=NOW_US, u=1.0)
    assert (verdict.header, verdict.satisfies, verdict.trigger, verdict.seen_token, verdict.unreadable) == (
        None, False, MISS, 0, None,
    )  # fmt: skip


def test_an_unreadable_entry_is_a_miss_that_names_its_token_and_its_reason() -> None:
    raw = encode(an_entry(), DIGEST, b"")
    verdict = evaluate(raw[:2] + b"\x09" + raw[3:], DIGEST, ANY, now_us=NOW_US, u=1.0)
    assert (verdict.satisfies, verdict.trigger, verdict.seen_token, verdict.unreadable) == (False, MISS, 50, "version")


@pytest.mark.parametrize(
    ("options", "freshness"),
    [
        ({}, ANY),
        ({"version": 2, "timeout": 1, "max_age": None, "fresh": False}, ANY),
        ({"max_age": "1m"}, Freshness(max_age_seconds=60.0)),
        ({"fresh": True}, Freshness(fresh=True)),
        ({"min_generation": 7}, Freshness(min_generation=7)),
        ({"min_generation": {1: 7}, "version": [1]}, ANY),  # which the key refuses
        ({"min_bookmarks": ["b", "a", "b"]}, Freshness(min_bookmarks=frozenset("ab"))),
    ],
)
def test_options_become_a_freshness_requirement(options: Any, freshness: Freshness) -> None:
    assert parse_freshness("q", options) == freshness


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_age": -1}, "max_age"),
        ({"max_age": "soon"}, "max_age"),
        ({"max_age": float("nan")}, "max_age"),
        ({"min_generation": -1}, "min_generation"),
        ({"min_generation": True}, "min_generation"),
        ({"min_generation": 1.5}, "min_generation"),
        ({"min_bookmarks": "bookmark"}, "bookmarks"),
        ({"min_bookmarks": ["b"] * 17}, "bookmarks"),
        ({"min_bookmarks": [""]}, "bookmarks"),
        ({"min_bookmarks": ["a\nb"]}, "bookmarks"),
        ({"min_bookmarks": ["ä"]}, "bookmarks"),
        ({"min_bookmarks": [5]}, "bookmarks"),
        ({"min_bookmarks": ["x" * 1_025]}, "bookmarks"),
        ({"maxage": 5}, "'maxage'"),
    ],
)
def test_a_wrong_option_is_refused_by_its_name(options: Any, named: str) -> None:
    with pytest.raises(InvalidQuery, match=named) as caught:
        parse_freshness("friends_of", options)
    assert caught.value.query == "friends_of"


def test_the_error_of_an_unknown_option_lists_those_that_the_call_takes() -> None:
    options: Any = {"person": 5}
    with pytest.raises(InvalidQuery, match=r"^'q': .* max_age, .*, timeout, version, type, default "):
        parse_freshness("q", options)
    with pytest.raises(InvalidQuery, match=r"^get_many\(\): .* max_age, .*, timeout, version .* QueryCall") as caught:
        parse_freshness("get_many", options, of_batch=True)
    assert caught.value.query is None


def test_valid_bookmarks_and_durations_of_a_call_are_accepted() -> None:
    assert parse_bookmarks("q", ["FB:kcwQ==", "x" * 1_024]) == ("FB:kcwQ==", "x" * 1_024)
    assert parse_duration("q", "timeout", "250ms") == 0.25
