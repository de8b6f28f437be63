"""A deadline for loads in a pool of threads, and what becomes of those that never return."""

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
from refresher.graph.deadlines import Deadlines

word = contextvars.ContextVar("word", default="none")


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """What a load hangs on, until the test is over."""
    event = threading.Event()
    yield event
    event.set()


def test_a_call_that_returns_in_time_is_as_if_it_were_called_here() -> None:
    word.set("told")
    assert Deadlines().run(word.get, 30, 60, pytest.fail) == "told"
    with pytest.raises(KeyError, match="x"):
        Deadlines().run(lambda: {}["x"], 30, 60, pytest.fail)
    with pytest.raises(SystemExit):
        Deadlines().run(lambda: (_ for _ in ()).throw(SystemExit), 30, 60, pytest.fail)


def test_a_call_beyond_its_hard_limit_was_interrupted_at_the_soft_one_and_is_abandoned(never: threading.Event) -> None:
    interrupted: list[bool] = []
    deadlines = Deadlines()
    with pytest.raises(LoadFailed) as caught:
        deadlines.run(never.wait, 0.01, 0.02, lambda: interrupted.append(deadlines.hangs))
    assert (caught.value.kind, caught.value.is_transient, caught.value.max_attempts) == ("hard_timeout", True, 2)
    assert interrupted == [False]
    assert deadlines.hangs


def test_a_load_that_comes_back_when_it_is_interrupted_has_timed_out_and_hangs_no_more() -> None:
    back = threading.Event()
    deadlines = Deadlines()
    with pytest.raises(LoadFailed) as caught:
        deadlines.run(back.wait, 0.01, 30, back.set)
    assert (caught.value.kind, caught.value.is_transient, caught.value.max_attempts) == ("timeout", True, 2)
    assert not deadlines.hangs


def test_short_loads_share_a_thread_which_ends_with_the_graph() -> None:
    deadlines = Deadlines()
    first, second = (deadlines.run(threading.current_thread, 30, 60, pytest.fail) for _ in range(2))
    assert first is second is not threading.current_thread()
    deadlines.close()
    first.join(30)
    assert not first.is_alive()


def test_a_load_gets_no_thread_that_another_is_in(never: threading.Event) -> None:
    deadlines = Deadlines()
    busy: list[threading.Thread] = []

    def hang() -> None:
        busy.append(threading.current_thread())
        never.wait()

    with pytest.raises(LoadFailed):
        deadlines.run(hang, 0.01, 0.02, lambda: None)
    other = deadlines.run(threading.current_thread, 30, 60, pytest.fail)
    assert busy != [other]
    deadlines.close()


def test_what_a_load_returns_after_it_was_given_up_nobody_gets(never: threading.Event) -> None:
    deadlines = Deadlines()
    ended = threading.Event()

    def late() -> str:
        never.wait()
        ended.set()
        return "too late"

    with pytest.raises(LoadFailed):
        deadlines.run(late, 0.01, 0.02, lambda: None)
    never.set()
    assert ended.wait(30)
    assert [deadlines.run(lambda number=number: number, 30, 60, pytest.fail) for number in range(100)] == list(
        range(100)
    )
    deadlines.close()


def test_a_thousand_loads_of_four_threads_take_four_threads() -> None:
    deadlines = Deadlines()
    used: set[threading.Thread] = set()

    def load() -> None:
        used.add(threading.current_thread())

    def pool_thread() -> None:
        for _ in range(250):
            deadlines.run(load, 30, 60, pytest.fail)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(pool_thread) for _ in range(4)]:
            done.result(60)
    assert 1 <= len(used) <= 4
    assert {(thread.name, thread.daemon) for thread in used} == {("load", True)}
    deadlines.close()
    for thread in used:
        thread.join(30)
    assert not any(thread.is_alive() for thread in used)


def test_what_a_load_raised_is_gone_with_whoever_caught_it() -> None:
    class Large(Exception):
        """Stands for an error that holds much, and for the values in the frames of its traceback."""

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
        deadlines = Deadlines()
        with suppress(Large):
            deadlines.run(load, 30, 60, pytest.fail)
        deadlines.run(lambda: None, 30, 60, pytest.fail)  # its thread has forgotten the load before
        assert kept[0]() is None
    finally:
        gc.enable()
    deadlines.close()


def test_a_system_without_a_thread_left_is_a_failure_that_may_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    deadlines = Deadlines()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", none_left)
        with pytest.raises(LoadFailed, match="no thread for the load") as caught:
            deadlines.run(lambda: 1, 30, 60, pytest.fail)
    assert (caught.value.kind, caught.value.is_transient) == ("transient", True)
    assert deadlines.run(lambda: 1, 30, 60, pytest.fail) == 1
