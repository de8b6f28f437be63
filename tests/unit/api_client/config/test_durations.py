from __future__ import annotations

from datetime import timedelta

import pytest

from api_client.config.durations import seconds


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (0, 0), (5, 5), (1.5, 1.5), (True + 1, 2), (timedelta(minutes=2), 120), (timedelta(0), 0),
        ("0", 0), ("90", 90), ("1.5", 1.5), (" 7 ", 7), ("250ms", 0.25), ("90s", 90), ("5m", 300), ("1h30m", 5400),
        ("1h 30m", 5400), ("2d", 172_800), ("1w", 604_800), ("1.5h", 5400), ("1m1ms", 60.001), (" 5 m ", 300),
    ],
)  # fmt: skip
def test_a_valid_duration_is_parsed_to_seconds(written: object, expected: float) -> None:
    assert seconds(written) == pytest.approx(expected)


@pytest.mark.parametrize(
    "wrong",
    [
        -1, -0.001, float("nan"), float("inf"), timedelta(seconds=-1), True, None, b"5s", [5],
        1e10, 2**63 - 1, timedelta.max, "6000w",
        pytest.param(10**400, id="large"), pytest.param(10**5000, id="huge"),
        "", " ", "5x", "-5s", "5 5", "1h30", "s", "1e3", "5S", "0x10", "nan", "inf", "٣s", "1,5s", "1h-30m", "9" * 400,
        "5mm", "h1", "1..5s", "5s;",
    ],
)  # fmt: skip
def test_an_invalid_duration_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        seconds(wrong)


@pytest.mark.parametrize("wrong", ["9" * 100_000 + "x", " " * 100_000, "1h" * 50_000 + "x"])
def test_a_long_invalid_duration_is_refused_without_being_shown(wrong: str) -> None:
    with pytest.raises(ValueError, match="is not a duration") as caught:
        seconds(wrong)
    assert len(str(caught.value)) < 300
