"""What a worker tells of a refresh as spans of a trace. Silent here; `refresher.otel` tells OpenTelemetry.

::

    processing ── a message's item, to its outcome
     ├─ a step of its lease record (acquire, commit …)          `records`
     ├─ a load, one for each attempt                            `origin`
     │   └─ each query that the loader asks the graph           `transaction`
     └─ a step of its lease record
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from refresher.outcome import Outcome

if TYPE_CHECKING:
    from api_client.messages import RefreshItem
    from refresher.queries import Query
    from refresher.settings import WorkerSettings
    from refresher.surroundings import Origin, Records
    from refresher.transactions import RunsQueries

Tell: TypeAlias = Callable[[Outcome], object]
"""Takes the outcome of an item."""


class WorkerSpans:
    """The spans of a worker: none."""

    def processing(self, item: RefreshItem, request: Any, settings: WorkerSettings) -> AbstractContextManager[Tell]:
        """Return a span around the handling of one item of a task's request; it is told the outcome before it ends."""
        return nullcontext(_nobody)

    def records(self, records: Records) -> Records:
        """Return ``records`` with a span around each step."""
        return records

    def origin(self, origin: Origin) -> Origin:
        """Return ``origin`` with a span around each load."""
        return origin

    def transaction(self, tx: RunsQueries, query: Query, settings: WorkerSettings) -> RunsQueries:
        """Return ``tx`` with a span around each query that it runs."""
        return tx


def _nobody(_: Outcome) -> None:
    """Take an outcome."""


NO_SPANS: Final = WorkerSpans()
