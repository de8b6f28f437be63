"""What interrupts a load, and what a process of the pool knows of its end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from refresher.graph import pool_process
from refresher.graph.pool_process import (
    SAME_SIGNAL_SECONDS,
    ShutdownFlag,
    SoftTimeLimit,
    end_process,
    pool_has_limits,
    process_is_ending,
)


@pytest.fixture
def received() -> Iterator[list[int]]:
    numbers: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        numbers.append(number)

    before = signal.signal(signal.SIGUSR1, handle)
    yield numbers
    signal.signal(signal.SIGUSR1, before)


@pytest.fixture
def in_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_process, "pool_has_limits", lambda: True)


def test_a_signal_within_a_second_of_another_is_the_same_one(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers: list[int] = []
    now = 100.0
    monkeypatch.setattr(pool_process, "monotonic", lambda: now)
    limit = SoftTimeLimit(lambda number, _: numbers.append(number))
    limit(1, None)
    now += SAME_SIGNAL_SECONDS * 0.9
    limit(2, None)
    now += SAME_SIGNAL_SECONDS * 0.2
    limit(3, None)
    assert numbers == [1, 3]


@pytest.mark.usefixtures("in_pool")
def test_a_refresh_is_interrupted_in_its_load_alone_and_once(received: list[int]) -> None:
    limit = SoftTimeLimit()
    with limit.in_task():
        os.kill(os.getpid(), signal.SIGUSR1)
        assert received == []
        with limit.in_load():
            os.kill(os.getpid(), signal.SIGUSR1)
            os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert received == [signal.SIGUSR1]


@pytest.mark.usefixtures("in_pool")
def test_a_task_of_another_name_is_interrupted_as_ever(received: list[int]) -> None:
    limit = SoftTimeLimit()
    for _ in range(2):
        with limit.in_task():
            pass
    os.kill(os.getpid(), signal.SIGUSR1)
    assert received == [signal.SIGUSR1]


def test_where_the_pool_has_no_limits_the_signal_is_left_alone(received: list[int]) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    with SoftTimeLimit().in_task():
        assert signal.getsignal(signal.SIGUSR1) is before


def test_this_process_is_of_no_prefork_pool_and_so_never_ended_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_process, "terminate_handler_fired", lambda: True)
    assert not pool_has_limits()
    assert not process_is_ending()


@pytest.mark.usefixtures("in_pool")
@pytest.mark.parametrize("is_told", [True, False])
def test_a_process_of_a_pool_ends_once_a_signal_has_told_it_to(
    monkeypatch: pytest.MonkeyPatch, *, is_told: bool
) -> None:
    monkeypatch.setattr(pool_process, "terminate_handler_fired", lambda: is_told)
    assert process_is_ending() is is_told


def test_a_shutdown_is_known_to_processes_that_were_forked_before_it() -> None:
    flag = ShutdownFlag()
    assert not flag.is_set()
    if not (pid := os.fork()):
        flag.set()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert flag.is_set()


@pytest.mark.parametrize("is_stuck", [True, False])
def test_a_process_ends_with_code_1_after_its_runs_were_handed_back_or_too_long_after(
    monkeypatch: pytest.MonkeyPatch, *, is_stuck: bool
) -> None:
    monkeypatch.setattr(pool_process, "HAND_BACK_SECONDS", 0.1 if is_stuck else 600.0)
    read, write = os.pipe()

    def hand_back() -> None:
        os.write(write, b"handed back")
        if is_stuck:
            threading.Event().wait()

    if not (pid := os.fork()):
        end_process(hand_back, 45.0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    assert os.read(read, 100) == b"handed back"
    os.close(read)
    os.close(write)
