"""XFetch with a lock: who does not get it returns the value at hand."""

from __future__ import annotations

from benchmarks.stampede.notes import Mark, note
from benchmarks.stampede.strategies.locked import locked_or_waited
from benchmarks.stampede.strategies.steps import Found, Lock, Look, Steps, Unlock, recomputed
from benchmarks.stampede.strategies.xfetch import XFetch


class XLocked(XFetch):
    """Get; recompute early by chance and under the lock, or duck out; on a miss as `locked`."""

    name = "xlocked"
    title = "xlocked"
    cannot = "Who recomputes early makes its caller wait for that; past the expiry it is locked, and all wait."

    def steps(self) -> Steps:
        """Read once."""
        found: Found | None = yield Look()
        if found is None:
            note(Mark.MISS)
            return (yield from locked_or_waited())
        if not self.is_early(found):
            return found.stored.value
        note(Mark.EARLY)
        if not (yield Lock()):
            note(Mark.CONTENDED | Mark.DUCKED)
            return found.stored.value
        value = yield from recomputed()
        yield Unlock()
        return value
