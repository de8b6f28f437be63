"""Celery's soft time limit: it interrupts a load, once, and nothing else of a refresh."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

import pytest

from refresher.worker.celery_fixes import soft_limit
from refresher.worker.celery_fixes.soft_limit import SAME_SIGNAL_SECONDS, SoftTimeLimit


@pytest.fixture
def received() -> Iterator[list[int]]:
    numbers: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        numbers.append(number)

    before = signal.signal(signal.SIGUSR1, handle)
    yield numbers
    signal.signal(signal.SIGUSR1, before)


@pytest.fixture(autouse=True)
def _running_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soft_limit, "current_task", "a task of some name")


@pytest.fixture
def limit(received: list[int], monkeypatch: pytest.MonkeyPatch) -> SoftTimeLimit:
    """The limit of a process of a pool that has limits."""
    monkeypatch.setattr(soft_limit, "pool_has_limits", lambda: True)
    return SoftTimeLimit()


def test_a_repeated_soft_limit_signal_within_a_second_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers: list[int] = []
    now = 100.0
    monkeypatch.setattr(soft_limit, "monotonic", lambda: now)
    limit = SoftTimeLimit(lambda number, _: numbers.append(number))
    limit(1, None)
    now += SAME_SIGNAL_SECONDS * 0.9
    limit(2, None)
    now += SAME_SIGNAL_SECONDS * 0.2
    limit(3, None)
    assert numbers == [1, 3]


def test_a_refresh_is_interrupted_only_during_its_load_and_only_once(limit: SoftTimeLimit, received: list[int]) -> None:
    with limit.in_task():
        os.kill(os.getpid(), signal.SIGUSR1)
        assert received == []
        with limit.in_load():
            os.kill(os.getpid(), signal.SIGUSR1)
            os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert received == [signal.SIGUSR1]


def test_a_task_of_another_name_is_still_interrupted(limit: SoftTimeLimit, received: list[int]) -> None:
    for _ in range(2):
        with limit.in_task():
            pass
    os.kill(os.getpid(), signal.SIGUSR1)
    assert received == [signal.SIGUSR1]


def test_a_signal_that_comes_after_its_task_has_ended_does_not_end_the_process(
    limit: SoftTimeLimit, received: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with limit.in_task():
        pass
    monkeypatch.setattr(soft_limit, "current_task", None)
    os.kill(os.getpid(), signal.SIGUSR1)
    assert received == []


def test_without_limits_of_the_pool_the_signal_handler_is_left_unchanged(received: list[int]) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    with SoftTimeLimit().in_task():
        assert signal.getsignal(signal.SIGUSR1) is before


def test_a_load_in_place_is_interrupted_at_once_and_what_is_around_it_at_its_end(
    limit: SoftTimeLimit, received: list[int]
) -> None:
    with limit.in_place():
        os.kill(os.getpid(), signal.SIGUSR1)
        assert received == []
    assert received == [signal.SIGUSR1]


def test_a_signal_that_has_interrupted_a_load_in_place_is_not_kept_for_its_end(
    limit: SoftTimeLimit, received: list[int]
) -> None:
    with limit.in_place(), limit.in_load():
        os.kill(os.getpid(), signal.SIGUSR1)
        assert received == [signal.SIGUSR1]
    assert received == [signal.SIGUSR1]


def test_a_load_in_place_that_begins_after_the_signal_is_interrupted(limit: SoftTimeLimit, received: list[int]) -> None:
    with limit.in_place():
        os.kill(os.getpid(), signal.SIGUSR1)
        with limit.in_load():
            assert received == [signal.SIGUSR1]


def test_the_end_of_an_inner_load_interrupts_the_outer_one(limit: SoftTimeLimit, received: list[int]) -> None:
    with limit.in_task(), limit.in_load():
        with limit.in_place():
            with limit.in_load():
                pass
            os.kill(os.getpid(), signal.SIGUSR1)
            assert received == []
        assert received == [signal.SIGUSR1], "the outer load goes on"


def test_a_load_in_place_on_another_thread_leaves_the_limit_of_the_task_alone(
    limit: SoftTimeLimit, received: list[int]
) -> None:
    with limit.in_task(), limit.in_load():
        with ThreadPoolExecutor(1) as threads:
            threads.submit(_enter, limit).result()
        os.kill(os.getpid(), signal.SIGUSR1)
    assert received == [signal.SIGUSR1]


def _enter(limit: SoftTimeLimit) -> None:
    limit.in_place().__enter__()
