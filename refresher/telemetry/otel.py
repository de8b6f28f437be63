"""A worker's events as OpenTelemetry metrics, and its refreshes as spans. ``pip install 'refresher[otel]'``.

It needs OpenTelemetry's API alone. `telemetry` has an SDK set up where a worker is to have one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, Meter, Observation

from api_client._version import __version__
from api_client.observe.otel import SCOPE
from refresher.flow.dead_letters import DeadLetter, letters_by_query
from refresher.flow.events import WorkerEvents, WorkerSpans
from refresher.queries import Registry
from refresher.telemetry.otel_spans import OTelWorkerSpans
from refresher.telemetry.prometheus import ACTIVE, COUNTERS, DROPPED, DURATIONS, HELD, SECONDS_BUCKETS


class OTelWorkerEvents(WorkerEvents):
    """Counts what a worker tells by OpenTelemetry, and traces its refreshes.

    One object a process. The metrics are those of `PrometheusWorkerEvents`, by the same names.

    Args:
        tracer_provider: default: the process's own (`opentelemetry.trace.get_tracer_provider`).
        meter_provider: default: as well (`opentelemetry.metrics.get_meter_provider`).
    """

    def __init__(
        self,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        self.spans: WorkerSpans = OTelWorkerSpans(trace.get_tracer(SCOPE, __version__, tracer_provider))
        self.meter: metrics.Meter = metrics.get_meter(SCOPE, __version__, meter_provider)
        meter = self.meter
        self._counters = {
            name: meter.create_counter(f"{name}_total", "", help_) for name, (_, help_) in COUNTERS.items()
        }
        self._durations = {
            name: meter.create_histogram(name, "s", help_, explicit_bucket_boundaries_advisory=SECONDS_BUCKETS)
            for name, help_ in DURATIONS.items()
        }
        self._active = [meter.create_up_down_counter(name, "", help_) for name, help_ in ACTIVE.items()]
        self._dropped = meter.create_counter(f"{DROPPED[0]}_total", "", DROPPED[1])

    def acquired(self, query: str) -> None:
        """Count a run that begins."""
        for gauge in self._active:
            gauge.add(1, {"query": query})

    def ended(self, query: str) -> None:
        """Count a run that has ended."""
        for gauge in self._active:
            gauge.add(-1, {"query": query})

    def committed(self, query: str, *, delta_seconds: float, run_seconds: float, as_stale: bool) -> None:
        """Count a value stored."""
        attributes = {"query": query}
        self._counters["xfetch_refresh_completed"].add(1, attributes)
        self._durations["xfetch_refresh_duration_seconds"].record(run_seconds, attributes)
        self._durations["xfetch_refresh_lead_seconds"].record(delta_seconds, attributes)

    def rejected(self, query: str, *, why: str) -> None:
        """Count a write that was refused."""
        self._counters["xfetch_stale_write_rejected"].add(1, {"query": query, "why": why})

    def skipped(self, query: str, *, why: str) -> None:
        """Count a message with nothing to do."""
        self._counters["xfetch_refresh_skipped"].add(1, {"query": query, "why": why})
        if why in HELD:
            self._counters["xfetch_lock_contention"].add(1, {"query": query})

    def retried(self, query: str, *, kind: str, attempt: int, pause_seconds: float) -> None:
        """Count a failed attempt that will be repeated."""
        self._counters["xfetch_refresh_retried"].add(1, {"query": query, "kind": kind})

    def failed(self, query: str, *, kind: str, attempts: int) -> None:
        """Count a refresh that was given up."""
        self._counters["xfetch_refresh_failed"].add(1, {"query": query, "kind": kind})

    def message_dropped(self, *, reason: str) -> None:
        """Count a message that was dropped unread."""
        self._dropped.add(1, {"reason": reason})


log: Final = logging.getLogger(__name__)

Look: TypeAlias = Callable[[], Mapping[str, float]]
"""Returns values by query; of what is no query's, by ''."""


@dataclass(frozen=True, slots=True)
class OTelGauges:
    """Gauges that are looked up at each export. What can't be told is left out: a gap in the graph says so.

    Args:
        waiting: how many refreshes wait in the broker.
        letters: the dead letters that are kept.
        queries: what the worker can load.
    """

    waiting: Callable[[], int]
    letters: Callable[[], Iterable[DeadLetter]]
    queries: Registry

    def observe(self, meter: Meter) -> None:
        """Have a meter look them up."""
        looks: dict[str, tuple[str, str, Look]] = {
            "xfetch_refresh_queue_size": ("", "Early and stale refreshes that wait", lambda: {"": self.waiting()}),
            "xfetch_dead_letters": ("", "Dead letters that are kept", lambda: self._letters()[0]),
            "xfetch_quarantined_keys": (
                "", "Keys of which several refreshes in a row were given up", lambda: self._letters()[1],
            ),
            "xfetch_query_ttl_seconds": (
                "s", "Soft expiry of the query's values after their load",
                lambda: {query.name: query.ttl_seconds for query in self.queries},
            ),
            "xfetch_query_grace_seconds": (
                "s", "For how long they may be served after it",
                lambda: {query.name: query.grace_seconds for query in self.queries},
            ),
        }  # fmt: skip
        for name, (unit, help_, look) in looks.items():
            meter.create_observable_gauge(name, [_looking(look)], unit, help_)

    def _letters(self) -> tuple[Mapping[str, float], Mapping[str, float]]:
        return letters_by_query(self.letters(), (query.name for query in self.queries))


def _looking(look: Look) -> Callable[[CallbackOptions], list[Observation]]:
    def looked(_: CallbackOptions) -> list[Observation]:
        try:
            return [Observation(value, {"query": query} if query else {}) for query, value in look().items()]
        except Exception as error:  # noqa: BLE001 - whatever is away now: the export goes on
            log.warning("an export goes without some gauges: %s", type(error).__name__)
            return []

    return looked
