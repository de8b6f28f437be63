"""A probe that may never return runs once at a time, and holds up no caller for longer than its timeout."""

from __future__ import annotations

import threading

import pytest

from refresher.ops.probe import CachedProbe, ProbeTimeout
from tests.support.clock import Time
from tests.support.waiting import MAX_WAIT_SECONDS


class Gate:
    """Something that answers when it is opened."""

    def __init__(self) -> None:
        self.opened, self.asked = threading.Event(), 0

    def probe(self) -> int:
        self.asked += 1
        assert self.opened.wait(MAX_WAIT_SECONDS)
        return self.asked


def test_one_that_hangs_is_asked_once_and_answers_late_all_the_same() -> None:
    gate = Gate()
    probe = CachedProbe(gate.probe)
    for _ in range(3):
        with pytest.raises(ProbeTimeout):
            probe.result(0.01)
    assert gate.asked == 1
    gate.opened.set()
    assert probe.result(MAX_WAIT_SECONDS) == 1


def test_an_answer_stands_for_as_long_as_it_is_kept() -> None:
    clock, gate = Time(), Gate()
    gate.opened.set()
    probe = CachedProbe(gate.probe, ttl_seconds=5, monotonic=clock)
    assert [probe.result(MAX_WAIT_SECONDS), probe.result(MAX_WAIT_SECONDS)] == [1, 1]
    clock.now += 6
    assert probe.result(MAX_WAIT_SECONDS) == 2


def test_an_error_is_raised_and_kept_like_an_answer() -> None:
    tries: list[int] = []

    def fail() -> None:
        tries.append(1)
        raise ValueError("no")

    probe = CachedProbe(fail, ttl_seconds=1_000)
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            probe.result(MAX_WAIT_SECONDS)
    assert tries == [1]
