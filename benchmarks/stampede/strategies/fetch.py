"""No protection: who finds nothing recomputes."""

from __future__ import annotations

from benchmarks.stampede.notes import Mark, note
from benchmarks.stampede.strategies.steps import Found, Look, Steps, StepStrategy, recomputed


class Fetch(StepStrategy):
    """Get; on a miss recompute and set."""

    name = "fetch"
    title = "fetch"
    cannot = "No protection: everyone who finds nothing recomputes, and waits for that."

    def steps(self) -> Steps:
        """Read once."""
        found: Found | None = yield Look()
        if found is not None:
            return found.stored.value
        note(Mark.MISS)
        return (yield from recomputed())
