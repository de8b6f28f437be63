"""What a worker tells those who count: one method an event, silent by default (see `api_client.events`)."""

from __future__ import annotations

from typing import Any

from refresher.spans import NO_SPANS, WorkerSpans


class WorkerEvents:
    """The events of a worker. Durations in seconds."""

    spans: WorkerSpans = NO_SPANS
    """Told of refreshes as spans of a trace."""

    def acquired(self, query: str) -> None:
        """Record a run that begins."""

    def committed(self, query: str, *, delta_seconds: float, run_seconds: float, as_stale: bool) -> None:
        """Record a value stored; ``as_stale`` where an invalidation had met the run."""

    def rejected(self, query: str, *, why: str) -> None:
        """Record a write that was refused: superseded, invalidated, lost."""

    def skipped(self, query: str, *, why: str) -> None:
        """Record a message with nothing to do: already_fresh, or the state of the record that held the key.

        Or one that was put back, to come again later: no_slot, since its query held all the slots that it may.
        """

    def retried(self, query: str, *, kind: str, attempt: int, pause_seconds: float) -> None:
        """Record a failed attempt that will be repeated."""

    def failed(self, query: str, *, kind: str, attempts: int) -> None:
        """Record a refresh that was given up."""

    def ended(self, query: str) -> None:
        """Record that a run has ended, however it did, and holds its lease no longer."""

    def message_dropped(self, *, reason: str) -> None:
        """Record a message that was dropped unread, for one of `refresher.guard.DropReason`."""


def events_of(app: Any) -> WorkerEvents:
    """Return what is told of a Celery app's messages; silent where nobody set the app up for refreshes."""
    events: WorkerEvents = getattr(app, "refresher_events", WorkerEvents)()
    return events
