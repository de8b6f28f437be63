"""Turns of tests that run in several processes: one marked `alone` begins when no other runs, and lets none begin.

A pytest plugin for xdist. A test holds the room for itself or shares it, by a lock on a file that is there anyway. To
come in it passes a turnstile, so that those that share the room don't keep out one that waits to have it for itself.
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
            fcntl.flock(inside, fcntl.LOCK_UN)  # closing does not, where a child of the test's has the file, too


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before pytest-timeout: waiting is none of the test's time
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run a test in its turn. Where no process of xdist runs it, no other test runs beside it."""
    if not hasattr(item.config, "workerinput"):
        return (yield)
    with turn(alone=item.get_closest_marker("alone") is not None):
        return (yield)
