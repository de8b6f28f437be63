"""Kills whoever recomputes, in the middle of it, and tells how long the others went without."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from numpy.typing import NDArray

from benchmarks.stampede.origin import Ledger, Recompute
from benchmarks.stampede.tally import Tally, between, count

_POLL_SECONDS: Final = 0.01


@dataclass(frozen=True, slots=True)
class Crash:
    """A kill −9 of the process that recomputed. Times in seconds, NaN where it did not happen before the end.

    Attributes:
        at: when (monotonic).
        again: from then to the next recompute's begin.
        fresh: from then to the next recompute's end: what is served is fresh again.
        meanwhile: the reads until then.
    """

    at: float
    again: float
    fresh: float
    meanwhile: Tally


class Killer:
    """Waits for the first recompute after ``since``, and kills its process in the middle of it."""

    def __init__(self, ledger: Ledger, since: float, delta_seconds: float) -> None:
        self._ledger, self._since, self._half_seconds = ledger, since, delta_seconds / 2
        self.killed_at: float | None = None
        self._next_look = 0.0

    def look(self) -> None:
        """Look whether it is time; to be called every few milliseconds."""
        now = time.monotonic()
        if self.killed_at is not None or now < max(self._since, self._next_look) or not self._ledger.running:
            return
        self._next_look = now + _POLL_SECONDS
        for recompute in self._ledger.recomputes():
            if recompute.began > self._since and recompute.ended is None:
                time.sleep(max(0.0, recompute.began + self._half_seconds - time.monotonic()))
                self._kill(recompute)
                return

    def _kill(self, recompute: Recompute) -> None:
        with suppress(ProcessLookupError):
            os.kill(recompute.pid, signal.SIGKILL)
            self.killed_at = time.monotonic()
            self._ledger.bury()


def told(killed_at: float, until: float, reads: NDArray[Any], recomputes: Sequence[Recompute]) -> Crash:
    """Tell what followed a kill, up to ``until``."""
    begun = [recompute.began for recompute in recomputes if recompute.began > killed_at]
    ended = [recompute.ended for recompute in recomputes if recompute.ended is not None and recompute.ended > killed_at]
    fresh_at = min(ended, default=until)
    meanwhile = between(reads, killed_at, fresh_at)
    return Crash(
        at=killed_at,
        again=min(begun) - killed_at if begun else math.nan,
        fresh=fresh_at - killed_at if ended else math.nan,
        meanwhile=count(meanwhile, [], fresh_at - killed_at),
    )
