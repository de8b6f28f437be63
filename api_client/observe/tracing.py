"""Spans of a reader, as no-ops; `api_client.otel` has those of OpenTelemetry.

::

    a read triggers ──▶ start_trigger(): only keeps the caller's context on the read's path
    the publisher   ──▶ begin() ──▶ claimed() ──▶ sending(): the message's headers ──▶ end()
    a read waits    ──▶ waiting(): around the whole wait; the trigger that it publishes starts within
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from api_client.protocol.keys import CacheKey

NO_TRACE: Final[Mapping[str, str]] = {}


class TriggerTrace:
    """Trace of one trigger on its way to the workers; all but its construction happens on the publisher's thread."""

    __slots__ = ()

    def begin(self) -> None:
        """Record that the publisher starts handling the trigger."""

    def claimed(self, since_ns: int) -> None:
        """Record a claim, granted or not, that lasted from ``since_ns`` (of `time.time_ns`) until now."""

    def sending(self, system: str, queue: str) -> Mapping[str, str]:
        """Begin to publish; return the message's headers by which a worker continues the trace."""
        return NO_TRACE

    def end(self, outcome: str, why: str) -> None:
        """End the trace with ``outcome``, a value of `api_client.trigger.backlog.TriggerOutcome`, and a reason."""


NULL_TRACE: Final = TriggerTrace()


class ReaderSpans:
    """The spans of a reader, which do nothing here."""

    def start_trigger(self, key: CacheKey, reason: str) -> TriggerTrace:
        """Keep the caller's context for the refresh that its read has just triggered."""
        return NULL_TRACE

    def waiting(self, keys: Sequence[CacheKey]) -> AbstractContextManager[None]:
        """Return a context manager that traces the wait for these keys' values."""
        return nullcontext()


NO_SPANS: Final = ReaderSpans()
