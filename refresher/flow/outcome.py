"""Outcome of one refresh item."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from api_client.errors import CacheUnavailable
from api_client.protocol.messages import RefreshItem


class OutcomeKind(StrEnum):
    """Kind of an item's outcome."""

    COMMITTED = "committed"
    UNCHANGED = "unchanged"
    COMMITTED_AS_STALE = "committed_as_stale"
    REJECTED = "rejected"
    SKIPPED = "skipped"
    RETRY = "retry"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one item, with its reason in ``why``.

    ``attempts`` counts all attempts of the refresh so far. Only a RETRY has ``again``, the item of the next attempt, to
    be sent after ``pause_seconds`` (whole).
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
        if self.kind in _STORED:
            parts.append(f"token={self.token} δ={self.delta_seconds:.3f}s run={self.run_seconds:.3f}s")
        if self.attempts > 1:
            parts.append(f"attempts={self.attempts}")
        return " ".join(part for part in parts if part)

    @property
    def end(self) -> str:
        """Kind of the outcome, with its reason unless that is the reason for the refresh."""
        return self.kind.value if self.kind in _STORED or not self.why else f"{self.kind.value} ({self.why})"


Ended: TypeAlias = Outcome | CacheUnavailable
"""Outcome of one item, or the error if Redis did not answer."""
_STORED: Final = frozenset({OutcomeKind.COMMITTED, OutcomeKind.UNCHANGED, OutcomeKind.COMMITTED_AS_STALE})


def summary(outcomes: Sequence[Outcome]) -> str:
    """Format the outcomes of one message; several as counts, such as ``friends_of ×3: 3 committed``."""
    if len(outcomes) == 1:
        return str(outcomes[0])
    ends: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        ends.setdefault(outcome.query, Counter())[outcome.end] += 1
    return "; ".join(
        f"{query} ×{counts.total()}: " + ", ".join(f"{count} {end}" for end, count in counts.most_common())
        for query, counts in ends.items()
    )
