"""Deadlines of loads in a pool of threads, loads that never return, and the end of a process of a prefork pool."""

from __future__ import annotations

import contextvars
import gc
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from refresher.errors import LoadFailed
from refresher.graph import thread_limits
from refresher.graph.thread_limits import ThreadLimits, pool_has_limits, process_is_ending
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

word = contextvars.ContextVar("word", default="none")


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """Return an event on which a load hangs until the test is over."""
    event = threading.Event()
    yield event
    event.set()


def test_a_call_that_returns_in_time_passes_on_context_result_and_errors() -> None:
    word.set("told")
    assert ThreadLimits().run(word.get, 30, 60, pytest.fail) == "told"
    with pytest.raises(KeyError, match="x"):
        ThreadLimits().run(lambda: {}["x"], 30, 60, pytest.fail)
    with pytest.raises(SystemExit):
        ThreadLimits().run(lambda: (_ for _ in ()).throw(SystemExit), 30, 60, pytest.fail)


def test_a_call_beyond_its_hard_limit_was_interrupted_at_the_soft_one_and_is_abandoned(never: threading.Event) -> None:
    interrupted: list[bool] = []
    limits = ThreadLimits()
    with pytest.raises(LoadFailed) as caught:
        limits.run(never.wait, 0.01, 0.02, lambda: interrupted.append(limits.hangs))
    assert (caught.value.kind, caught.value.is_transient, caught.value.max_attempts) == ("hard_timeout", True, 2)
    assert interrupted == [False]
    assert limits.hangs


def test_a_load_that_returns_when_interrupted_has_timed_out_and_does_not_hang() -> None:
    back = threading.Event()
    limits = ThreadLimits()
    with pytest.raises(LoadFailed) as caught:
        limits.run(back.wait, 0.01, 30, back.set)
    assert (caught.value.kind, caught.value.is_transient, caught.value.max_attempts) == ("timeout", True, 2)
    assert not limits.hangs


def test_short_loads_share_a_thread_that_ends_when_the_limits_are_closed() -> None:
    limits = ThreadLimits()
    first, second = (limits.run(threading.current_thread, 30, 60, pytest.fail) for _ in range(2))
    assert first is second is not threading.current_thread()
    limits.close()
    first.join(MAX_WAIT_SECONDS)
    assert not first.is_alive()


def test_a_load_never_runs_in_a_thread_that_another_load_occupies(never: threading.Event) -> None:
    limits = ThreadLimits()
    busy: list[threading.Thread] = []

    def hang() -> None:
        busy.append(threading.current_thread())
        never.wait()

    with pytest.raises(LoadFailed):
        limits.run(hang, 0.01, 0.02, lambda: eventually(lambda: busy, "it has begun"))
    other = limits.run(threading.current_thread, 30, 60, pytest.fail)
    assert other not in busy
    limits.close()


def test_the_late_result_of_an_abandoned_load_is_discarded(never: threading.Event) -> None:
    limits = ThreadLimits()
    ended = threading.Event()

    def late() -> str:
        never.wait()
        ended.set()
        return "too late"

    with pytest.raises(LoadFailed):
        limits.run(late, 0.01, 0.02, lambda: None)
    never.set()
    assert ended.wait(MAX_WAIT_SECONDS)
    assert [limits.run(lambda number=number: number, 30, 60, pytest.fail) for number in range(100)] == list(range(100))
    limits.close()


def test_a_thousand_loads_of_four_threads_take_four_threads() -> None:
    limits = ThreadLimits()
    used: set[threading.Thread] = set()

    def load() -> None:
        used.add(threading.current_thread())

    def pool_thread() -> None:
        for _ in range(250):
            limits.run(load, 30, 60, pytest.fail)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(pool_thread) for _ in range(4)]:
            done.result(MAX_WAIT_SECONDS)
    assert 1 <= len(used) <= 4
    assert {(thread.name, thread.daemon) for thread in used} == {("load", True)}
    limits.close()
    for thread in used:
        thread.join(MAX_WAIT_SECONDS)
    assert not any(thread.is_alive() for thread in used)


def test_a_load_s_exception_is_not_kept_in_memory_after_it_was_handled() -> None:
    class Large(Exception):
        """An error that keeps much in memory, like the values in the frames of its traceback."""

    kept: list[weakref.ref[Large]] = []

    def load() -> None:
        error = Large()
        kept.append(weakref.ref(error))
        try:
            raise error
        finally:
            del error

    gc.disable()
    try:
        limits = ThreadLimits()
        with suppress(Large):
            limits.run(load, 30, 60, pytest.fail)
        limits.run(lambda: None, 30, 60, pytest.fail)  # the thread has dropped the previous load
        assert kept[0]() is None
    finally:
        gc.enable()
    limits.close()


def test_a_system_out_of_threads_is_a_transient_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    limits = ThreadLimits()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", none_left)
        with pytest.raises(LoadFailed, match="no thread for the load") as caught:
            limits.run(lambda: 1, 30, 60, pytest.fail)
    assert (caught.value.kind, caught.value.is_transient) == ("transient", True)
    assert limits.run(lambda: 1, 30, 60, pytest.fail) == 1


def test_a_process_outside_a_prefork_pool_has_no_pool_limits_and_is_never_ending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(thread_limits, "terminate_handler_fired", lambda: True)
    assert not pool_has_limits()
    assert not process_is_ending()


@pytest.mark.parametrize("has_fired", [True, False])
def test_a_pool_process_is_ending_once_its_terminate_handler_has_fired(
    monkeypatch: pytest.MonkeyPatch, *, has_fired: bool
) -> None:
    monkeypatch.setattr(thread_limits, "pool_has_limits", lambda: True)
    monkeypatch.setattr(thread_limits, "terminate_handler_fired", lambda: has_fired)
    assert process_is_ending() is has_fired
