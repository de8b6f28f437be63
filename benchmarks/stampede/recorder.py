"""Marks on the current read, set by a strategy or by a hook in another cache."""

from __future__ import annotations

from contextvars import ContextVar
from enum import IntFlag
from typing import Final


class Mark(IntFlag):
    """Record of a read, in one byte. A read without MISS and ERROR is a hit."""

    NONE = 0
    MISS = 1
    """There was no value, so the read had to compute, or to wait for another one that did."""
    EARLY = 2
    """There was a value, but the read decided for a recompute nevertheless."""
    COMPUTED = 4
    """The reader computed, while its caller waited."""
    CONTENDED = 8
    """Another reader held the lock."""
    DUCKED = 16
    """The decision was for a recompute, but another one was in progress, so the present value was served."""
    STALE = 32
    """The served value was older than allowed."""
    ERROR = 64
    FIRST = 128
    """A reader's first served read, or an earlier one, which is not counted."""


CURRENT_READ: Final[ContextVar[list[Mark] | None]] = ContextVar("marks", default=None)
"""Marks of the current read on this thread, or in this task and those that it starts."""


def record(marks: Mark) -> None:
    """Set marks on the current read; do nothing without one, as in a worker."""
    if (found := CURRENT_READ.get()) is not None:
        found.append(marks)
