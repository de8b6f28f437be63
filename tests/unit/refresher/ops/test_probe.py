"""A probe that may never return runs once at a time, and holds up no caller for longer than its timeout."""

from __future__ import annotations

import threading

import pytest

from refresher.ops.probe import CachedProbe, ProbeTimeout
from tests.support.timing import Time
from tests.support.waiting import MAX_WAIT_SECONDS, eventually


class Gate:
    """A probe that returns once it is opened."""

    def __init__(self) -> None:
        self.opened, self.runs = threading.Event(), 0

    def probe(self) -> int:
        self.runs += 1
        assert self.opened.wait(MAX_WAIT_SECONDS)
        return self.runs


def test_a_hanging_probe_is_run_once_and_its_late_result_is_returned() -> None:
    gate = Gate()
    probe = CachedProbe(gate.probe)
    for _ in range(3):
        with pytest.raises(ProbeTimeout):
            probe.result(0.01)
    eventually(lambda: gate.runs, "it runs")
    gate.opened.set()
    assert probe.result(MAX_WAIT_SECONDS) == 1


def test_a_probe_s_result_is_reused_until_its_ttl_ends() -> None:
    clock, gate = Time(), Gate()
    gate.opened.set()
    probe = CachedProbe(gate.probe, ttl_seconds=5, monotonic=clock)
    assert [probe.result(MAX_WAIT_SECONDS), probe.result(MAX_WAIT_SECONDS)] == [1, 1]
    clock.now += 6
    assert probe.result(MAX_WAIT_SECONDS) == 2


def test_a_probe_s_error_is_raised_and_cached_like_a_result() -> None:
    tries: list[int] = []

    def fail() -> None:
        tries.append(1)
        raise ValueError("no")

    probe = CachedProbe(fail, ttl_seconds=1_000)
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            probe.result(MAX_WAIT_SECONDS)
    assert tries == [1]
