"""Loads within loads, of queries built on other queries, and the time that the outer loads leave.

A context variable holds them, so that they are also known in a thread that a load gets.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from api_client.errors import RefreshFailed
from api_client.protocol.clock import monotonic_seconds
from api_client.protocol.keys import CacheKey

MAX_DEPTH: Final = 8
CYCLE: Final = "cycle"
TOO_DEEP: Final = "too_deep"


@dataclass(frozen=True, slots=True)
class _Level:
    """Keys that are loaded together, or a waiting read (no keys), which has to end at ``ends_at`` (monotonic)."""

    keys: tuple[CacheKey, ...]
    ends_at: float
    outer: _Level | None

    @property
    def loads(self) -> Iterator[_Level]:
        """The loads in progress, innermost first."""
        level: _Level | None = self
        while level is not None:
            if level.keys:
                yield level
            level = level.outer


_level: Final[ContextVar[_Level | None]] = ContextVar("refresher_load", default=None)


class OutOfTime(Exception):
    """The time of a load in place is up: that of the read that waits for it, or of the load around it."""


@contextmanager
def within(keys: tuple[CacheKey, ...], seconds: float) -> Iterator[None]:
    """Mark the block as a load of ``keys``, or without keys as a read that waits, for at most ``seconds``."""
    outer = _level.get()
    ends_at = monotonic_seconds() + seconds
    reset = _level.set(_Level(keys, ends_at if outer is None else min(ends_at, outer.ends_at), outer))
    try:
        yield
    finally:
        _level.reset(reset)


def left_seconds() -> float:
    """Return the time left for the loads and reads around the caller; infinity if there are none."""
    level = _level.get()
    return float("inf") if level is None else level.ends_at - monotonic_seconds()


def is_in_load() -> bool:
    """Return whether the caller runs within a load."""
    level = _level.get()
    return level is not None and any(level.loads)


def check(key: CacheKey) -> None:
    """Check that a load may read ``key`` and wait for it.

    Raises:
        RefreshFailed: a load around it loads that key (``cycle``), or there are `MAX_DEPTH` of them (``too_deep``).
    """
    level = _level.get()
    loads = [] if level is None else list(level.loads)[::-1]
    for place, load in enumerate(loads):
        if any(one.entry == key.entry for one in load.keys):
            raise _refused(key, CYCLE, loads[place:], "it reads itself")
    if len(loads) >= MAX_DEPTH:
        raise _refused(key, TOO_DEEP, loads, f"at most {MAX_DEPTH} queries may be built on each other")


def _refused(key: CacheKey, kind: str, loads: list[_Level], why: str) -> RefreshFailed:
    chain = " → ".join([*(load.keys[0].query for load in loads), key.query])
    return RefreshFailed(key.query, kind, 0, 0.0, f"{why}: {chain}")
