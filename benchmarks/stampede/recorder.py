"""Marks on the running read, set by a strategy or by a hook in another cache."""

from __future__ import annotations

from contextvars import ContextVar
from enum import IntFlag
from typing import Final


class Mark(IntFlag):
    """Record of a read, in one byte. A read without MISS and ERROR is a hit."""

    NONE = 0
    MISS = 1
    """Nothing was there: the read had to compute, or to wait for who did."""
    EARLY = 2
    """A value was there, and the read decided for a recompute all the same."""
    COMPUTED = 4
    """The reader computed, and its caller waited for that."""
    CONTENDED = 8
    """Another one held the lock."""
    DUCKED = 16
    """The decision was for a recompute, and another one was at it: the value at hand was served."""
    STALE = 32
    """The value served was older than it may be."""
    ERROR = 64
    FIRST = 128
    """A reader's first read that was served, or one before it: not counted."""


CURRENT_READ: Final[ContextVar[list[Mark] | None]] = ContextVar("marks", default=None)
"""Marks of the read that runs on this thread, or in this task and those that it starts."""


def record(marks: Mark) -> None:
    """Note something on the running read; nothing where none runs, as in a worker."""
    if (found := CURRENT_READ.get()) is not None:
        found.append(marks)
