"""A lock: who finds nothing and gets it recomputes, the others wait and look again."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from benchmarks.stampede.notes import Mark, note
from benchmarks.stampede.strategies.steps import (
    Found,
    Lock,
    Look,
    Pause,
    Step,
    Steps,
    StepStrategy,
    Unlock,
    recomputed,
)
from benchmarks.stampede.strategies.strategy import Value


class Locked(StepStrategy):
    """Get; on a miss take the lock and recompute, or wait for who has it."""

    name = "locked"
    title = "locked"
    cannot = "Nothing is served while the value is made anew: all wait, looking again every 10 ms."

    def steps(self) -> Steps:
        """Read once."""
        found: Found | None = yield Look()
        if found is not None:
            return found.stored.value
        note(Mark.MISS)
        return (yield from locked_or_waited())


def locked_or_waited() -> Generator[Step, Any, Value]:
    """Recompute under the lock, or return what its holder has stored."""
    while True:
        if (yield Lock()):
            # Who had the lock before may have stored a value since one last looked.
            found: Found | None = yield Look()
            value = found.stored.value if found is not None else (yield from recomputed())
            yield Unlock()
            return value
        note(Mark.CONTENDED)
        yield Pause()
        found = yield Look()
        if found is not None:
            return found.stored.value
