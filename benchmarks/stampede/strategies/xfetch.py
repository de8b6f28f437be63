"""XFetch: who draws so recomputes before the value expires, and several may."""

from __future__ import annotations

import math
import random

from api_client.protocol.xfetch import cut_draw
from benchmarks.stampede.notes import Mark, note
from benchmarks.stampede.strategies.steps import Found, Look, Steps, StepStrategy, recomputed


def volunteers(left_seconds: float, delta_seconds: float, beta: float, u: float) -> bool:
    """Decide by XFetch's formula whether a draw ``u`` from (0, 1] recomputes so long before the expiry."""
    return -delta_seconds * beta * math.log(u) >= left_seconds


class XFetch(StepStrategy):
    """Get; recompute early by chance, and on a miss."""

    name = "xfetch"
    title = "xfetch"
    cannot = "Several may recompute at once, each of them while its caller waits; past the expiry it is fetch."

    def steps(self) -> Steps:
        """Read once."""
        found: Found | None = yield Look()
        if found is None:
            note(Mark.MISS)
        elif self.is_early(found):
            note(Mark.EARLY)
        else:
            return found.stored.value
        return (yield from recomputed())

    def is_early(self, found: Found) -> bool:
        """Draw."""
        u = cut_draw(1.0 - random.random(), self.terms.rnd_precision)  # noqa: S311 - no secret
        return volunteers(found.left_seconds, found.stored.delta, self.terms.beta, u)
