"""OpenTelemetry of a worker: each refreshing process has its own SDK, set up in OpenTelemetry's standard way.

An SDK does not survive a fork well: its threads are gone, its connections are the parent's, and two processes would
export the same numbers. So a forking pool sets it up in each of its processes but never in the main one, whose few
events are only in Prometheus and the log. An existing SDK (``opentelemetry-instrument``, or the application's) is used
unchanged.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING, Final

from refresher.flow.ports import WorkerEvents
from refresher.settings import WorkerSettings
from refresher.telemetry.metrics import WorkerGauges

if TYPE_CHECKING:
    from collections.abc import Callable

log: Final = logging.getLogger(__name__)
FLUSH_SECONDS: Final = 2.0
INSTALL: Final = "pip install 'refresher[otel]' opentelemetry-distro opentelemetry-exporter-otlp"


class Telemetry:
    """OpenTelemetry in this process; off without CACHE_OTEL.

    Args:
        settings: the worker's settings.
        gauges: makes the gauges, with connections of this process.
    """

    def __init__(self, settings: WorkerSettings, gauges: Callable[[], WorkerGauges]) -> None:
        self._settings, self._gauges = settings, gauges
        self._events: WorkerEvents | None = None
        self._pid = 0

    def start(self) -> None:
        """Start in a refreshing process; if that fails, log it, and let the worker refresh without OpenTelemetry."""
        if not self._settings.otel or self._pid == os.getpid():
            return
        self._pid, self._events = os.getpid(), None
        try:
            set_up_sdk()
            from refresher.telemetry.otel import OTelWorkerEvents, observe_gauges
        except ModuleNotFoundError as error:
            log.error("CACHE_OTEL is on, but %s is missing: %s", error.name, INSTALL)
            return
        self._events, gauges = OTelWorkerEvents(), self._gauges()
        self._events.expect(query.name for query in gauges.queries)
        observe_gauges(gauges, self._events.meter)

    @property
    def events(self) -> WorkerEvents | None:
        """Hooks with this process's meters and tracers; None if OpenTelemetry has not started in it."""
        return self._events if self._pid == os.getpid() else None

    def close(self) -> None:
        """Send pending data, for at most a few seconds, as nothing else does when a pool process ends."""
        if self.events is not None:
            _send_what_is_left()


def set_up_sdk() -> None:
    """Set up an SDK from OpenTelemetry's environment variables, unless this process already has one.

    Raises:
        ModuleNotFoundError: one of `INSTALL`'s packages is missing.
    """
    from opentelemetry import trace

    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return
    from opentelemetry.instrumentation.auto_instrumentation import initialize

    initialize()


def _send_what_is_left() -> None:
    """Flush for at most `FLUSH_SECONDS`, so that a hanging collector does not delay the exit."""
    sending = threading.Thread(target=_flush, name="otel-flush", daemon=True)
    sending.start()
    sending.join(FLUSH_SECONDS)


def _flush() -> None:
    from opentelemetry import metrics, trace

    for provider in (trace.get_tracer_provider(), metrics.get_meter_provider()):
        flush = getattr(provider, "force_flush", None)  # a method of the SDK, not of the API
        if flush is not None:
            flush(int(FLUSH_SECONDS * 1000))
