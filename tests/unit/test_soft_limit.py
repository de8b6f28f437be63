"""The soft limit's signal, which a pool that is shutting down sends twice."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from types import FrameType

import pytest

from refresher import soft_limit
from refresher.soft_limit import SAME_SECONDS, HeardOnce, hear_it_once


@pytest.fixture
def heard() -> Iterator[list[int]]:
    numbers: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        numbers.append(number)

    before = signal.signal(signal.SIGUSR1, handle)
    yield numbers
    signal.signal(signal.SIGUSR1, before)


def test_one_that_follows_within_a_second_is_the_same_and_a_later_one_is_not() -> None:
    numbers: list[int] = []
    now = 100.0
    handler = HeardOnce(lambda number, _: numbers.append(number), now=lambda: now)
    handler(1, None)
    now += SAME_SECONDS * 0.9
    handler(2, None)
    now += SAME_SECONDS * 0.2
    handler(3, None)
    assert numbers == [1, 3]


def test_a_process_of_a_pool_hears_it_once(heard: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soft_limit, "pool_has_limits", lambda: True)
    hear_it_once()
    hear_it_once()
    assert isinstance(signal.getsignal(signal.SIGUSR1), HeardOnce)
    for _ in range(3):
        os.kill(os.getpid(), signal.SIGUSR1)
    assert heard == [signal.SIGUSR1]


def test_where_the_pool_has_no_limits_the_signal_is_left_alone(heard: list[int]) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    hear_it_once()
    assert signal.getsignal(signal.SIGUSR1) is before
