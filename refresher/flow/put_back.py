"""Items that can't be loaded now, or not here, and go back into their queue.

During a rolling deployment a message may name a query, or params, that only another worker's release knows. Then it is
passed on: at once for the first times, since the broker gives it to the worker that has been idle for longest, later
after pauses. No lease is taken, so no attempt is counted, and the claim's time runs on. A message that nobody has taken
by then is dropped, and the next read claims anew. If no other live worker loads the query, it is abandoned at once.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from api_client.errors import InvalidQuery
from api_client.protocol.live_versions import loader_of, read_loaders
from api_client.protocol.messages import RefreshItem
from refresher.errors import LoadFailed
from refresher.flow.outcome import Outcome, OutcomeKind
from refresher.flow.ports import RefreshDeps, WorkerEvents
from refresher.queries import Query

MAX_PAUSE_SECONDS: Final = 8
PASSES_AT_ONCE: Final = 4
MAX_PASSES: Final = 10
"""Passes after which a message is dropped; by then it has met this many other releases' workers in half a minute."""
UNKNOWN_QUERY, WRONG_PARAMS = "unknown_query", "wrong_params"


class PutBack:
    """Puts items back for one reason, and counts by query how often in a row. Thread-safe.

    Args:
        why: the reason in the items' outcomes.
        events: hooks for the items.
    """

    def __init__(self, why: str, events: WorkerEvents) -> None:
        self._why, self._events = why, events
        self._in_a_row: defaultdict[str, int] = defaultdict(int)

    def begin(self, query: str) -> None:
        """Record that an item of a query is being loaded."""
        self._in_a_row[query] = 0

    def outcomes(self, items: Sequence[RefreshItem], *, longest_seconds: int = MAX_PAUSE_SECONDS) -> list[Outcome]:
        """Return the outcomes of items of one query, each to be sent again after a pause of whole seconds.

        The pauses are random, so that items waiting for the same thing return in any order, and grow up to
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


def fitting(query: Query | None, item: RefreshItem, params: Mapping[str, Any]) -> Query:
    """Return the query, checked to be loadable here with these params.

    Raises:
        LoadFailed: it is not registered here, or does not take these params.
    """
    if query is None:
        message = f"no query {item.query!r}, version {item.version}, is registered here"
        raise LoadFailed(UNKNOWN_QUERY, message, is_transient=False)
    try:
        query.check_params(params)
    except TypeError as error:
        raise LoadFailed(WRONG_PARAMS, f"{query.name}: {error}", is_transient=False) from error
    return query


def pass_on(deps: RefreshDeps, namespace: str, query: Query | None, items: Sequence[RefreshItem]) -> list[Outcome]:
    """Return the outcomes of items of one query that another worker may be able to load; none to load them here.

    The first item decides for all, because only a loader that takes any params loads several together.

    Raises:
        CacheUnavailable: Redis did not answer.
    """
    try:
        fitting(query, items[0], items[0].key(namespace).params)
    except InvalidQuery:
        return []
    except LoadFailed as misfit:
        loaders = deps.lease_steps.run(read_loaders(namespace, items[0].query, items[0].version))
        if loaders - {query and loader_of(query.version, query.takes)}:
            return [_passed_on(deps.events, item, misfit.kind) for item in items]
    return []


def _passed_on(events: WorkerEvents, item: RefreshItem, why: str) -> Outcome:
    events.skipped(item.query, why=why)
    if item.passes >= MAX_PASSES:
        return Outcome(OutcomeKind.SKIPPED, item.query, why=why, attempts=item.attempt)
    late = item.passes - PASSES_AT_ONCE
    return Outcome(
        OutcomeKind.RETRY, item.query, why=why, attempts=item.attempt,
        again=msgspec.structs.replace(item, passes=item.passes + 1),
        pause_seconds=0 if late < 0 else min(MAX_PAUSE_SECONDS, 2**late),
    )  # fmt: skip
