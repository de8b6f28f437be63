"""Measured durations: one that is too long fails, and a machine that lets threads run late is allowed more."""

from __future__ import annotations

import ctypes
import time

import pytest

from tests.support import timing
from tests.support.timing import Measured


@pytest.fixture(autouse=True)
def _no_slack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "SLACK_SECONDS", 0.0)


def test_a_duration_longer_than_promised_fails_and_shows_both() -> None:
    with Measured() as took:
        time.sleep(0.05)
    took.late_seconds = 0.0
    took.at_most(10.0)
    with pytest.raises(AssertionError, match=r"took 0\.\d+ s, promised are 0\.01 s; threads ran late by 0\.00 s"):
        took.at_most(0.01)


def test_the_time_by_which_other_threads_ran_late_is_added_to_the_limit() -> None:
    libc = ctypes.PyDLL(None)  # keeps the interpreter to itself
    with Measured() as took:
        time.sleep(0.03)  # the other thread has begun
        libc.usleep(200_000)
    assert took.late_seconds > 0.1
    assert took.allowed(1.0) > 1.5
