"""Items that can't be loaded now: they go back into their queue, for a pause that grows while that lasts."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from api_client.protocol.messages import RefreshItem
from refresher.flow.outcome import Outcome, OutcomeKind
from refresher.flow.ports import WorkerEvents

MAX_PAUSE_SECONDS: Final = 8


class PutBack:
    """Puts items back for one reason, and counts by query how often in a row. Thread-safe.

    Args:
        why: of their outcomes.
        events: hooks.
    """

    def __init__(self, why: str, events: WorkerEvents) -> None:
        self._why, self._events = why, events
        self._in_a_row: defaultdict[str, int] = defaultdict(int)

    def begin(self, query: str) -> None:
        """Record that an item of a query is loaded."""
        self._in_a_row[query] = 0

    def outcomes(self, items: Sequence[RefreshItem], *, longest_seconds: int = MAX_PAUSE_SECONDS) -> list[Outcome]:
        """Return the outcomes of items of one query: each is to be sent again after a pause of whole seconds.

        The pauses are random, so that items that wait for the same return in any order, and grow to
        ``longest_seconds``. No attempt is counted.
        """
        query = items[0].query
        self._in_a_row[query] += 1
        longest = min(longest_seconds, 2 ** min(self._in_a_row[query], longest_seconds))
        pause_seconds = random.randint(1, longest)  # noqa: S311 - no secret
        for _ in items:
            self._events.skipped(query, why=self._why)
        return [
            Outcome(
                OutcomeKind.RETRY, query, why=self._why, attempts=item.attempt, again=item, pause_seconds=pause_seconds
            )
            for item in items
        ]
