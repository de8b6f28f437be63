"""Outcome of one refresh item."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from api_client.protocol.messages import RefreshItem


class OutcomeKind(StrEnum):
    """How the handling of one item ended."""

    COMMITTED = "committed"
    COMMITTED_AS_STALE = "committed_as_stale"
    REJECTED = "rejected"
    SKIPPED = "skipped"
    RETRY = "retry"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one item ended; ``why`` says more where there is more to say.

    ``attempts`` counts all of the load until then. ``again`` is the item of the next attempt, to be sent after
    ``pause_seconds`` (whole), for RETRY alone.
    """

    kind: OutcomeKind
    query: str
    key: str = ""
    why: str = ""
    token: int = 0
    delta_seconds: float = 0.0
    run_seconds: float = 0.0
    attempts: int = 1
    again: RefreshItem | None = None
    pause_seconds: int = 0

    def __str__(self) -> str:
        parts = [self.kind.value, self.why and f"({self.why})", self.query, self.key]
        if self.kind in {OutcomeKind.COMMITTED, OutcomeKind.COMMITTED_AS_STALE}:
            parts.append(f"token={self.token} δ={self.delta_seconds:.3f}s run={self.run_seconds:.3f}s")
        if self.attempts > 1:
            parts.append(f"attempts={self.attempts}")
        return " ".join(part for part in parts if part)
