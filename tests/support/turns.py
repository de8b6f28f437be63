"""Turns of tests in several processes: a test marked `alone` starts when no other runs, and no other starts meanwhile.

A pytest plugin for xdist. A test holds an exclusive or shared lock, the room, on an existing file. To acquire it, it
first locks a turnstile, so that shared locks don't starve a test that waits for the exclusive one.
"""

from __future__ import annotations

import fcntl
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

ROOM: Final = Path(__file__)
TURNSTILE: Final = Path(__file__).with_name("__init__.py")


@contextmanager
def turn(*, alone: bool, room: Path = ROOM, turnstile: Path = TURNSTILE) -> Iterator[None]:
    """Wait for the turn of a test, and hold it."""
    with room.open() as inside:
        with turnstile.open() as entry:
            fcntl.flock(entry, fcntl.LOCK_EX)
            fcntl.flock(inside, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        try:
            yield
        finally:
            fcntl.flock(
                inside, fcntl.LOCK_UN
            )  # closing does not unlock it if a child of the test has the file open, too


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before pytest-timeout: waiting does not count as the test's time
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run a test in its turn. Where no process of xdist runs it, no other test runs beside it."""
    if not hasattr(item.config, "workerinput"):
        return (yield)
    with turn(alone=item.get_closest_marker("alone") is not None):
        return (yield)
