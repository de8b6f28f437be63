"""A clock that only tests move."""

from __future__ import annotations


class Time:
    """A monotonic clock, in seconds; ``now`` may be set."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now
