"""`Mutex`: however a signal handler's exception meets it, it is free afterwards."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from api_client.threads import Mutex


class InterruptedMutex(Mutex):
    """Its acquisition is interrupted by an exception: before or after it."""

    interrupted: str = ""

    def acquire(self, *arguments: Any, **options: Any) -> bool:
        if self.interrupted == "before":
            raise KeyboardInterrupt
        acquired = super().acquire(*arguments, **options)
        if self.interrupted == "after":
            raise KeyboardInterrupt
        return acquired


def is_free(mutex: Mutex) -> bool:
    """Return whether another thread can acquire it."""
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(mutex.acquire(blocking=False)))
    thread.start()
    thread.join()
    return found == [True]


@pytest.mark.promise("Reading", "An exception in a signal handler leaves no lock held, on Python 3.14 too")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_mutex_whose_acquisition_is_interrupted_is_free(moment: str) -> None:
    mutex = InterruptedMutex()
    mutex.interrupted = moment
    with pytest.raises(KeyboardInterrupt), mutex:
        raise AssertionError("the block must not begin")
    mutex.interrupted = ""
    assert is_free(mutex)


def test_a_mutex_is_held_within_its_block_also_a_nested_one_and_free_after_it() -> None:
    mutex = Mutex()
    with mutex:
        with mutex:
            assert not is_free(mutex)
        assert not is_free(mutex)
    assert is_free(mutex)


def test_a_mutex_is_released_by_a_function_in_c() -> None:
    """One in Python could be interrupted before its first step."""
    assert type(Mutex.__exit__) is type(str.join)
