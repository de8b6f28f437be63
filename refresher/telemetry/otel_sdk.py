"""OpenTelemetry's SDK in a process of a worker: set up as OpenTelemetry itself does it, and flushed at the end."""

from __future__ import annotations

import threading
from typing import Final

FLUSH_SECONDS: Final = 2.0
INSTALL: Final = "pip install 'refresher[otel]' opentelemetry-distro opentelemetry-exporter-otlp"


def set_up() -> None:
    """Set an SDK up by OpenTelemetry's environment variables, unless this process has one.

    Raises:
        ModuleNotFoundError: one of `INSTALL`'s packages is missing.
    """
    from opentelemetry import trace

    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return
    from opentelemetry.instrumentation.auto_instrumentation import initialize

    initialize()


def send_what_is_left() -> None:
    """Have all that was told sent, for at most two seconds: a collector that hangs holds nobody up."""
    sending = threading.Thread(target=_flush, name="otel-flush", daemon=True)
    sending.start()
    sending.join(FLUSH_SECONDS)


def _flush() -> None:
    from opentelemetry import metrics, trace

    for provider in (trace.get_tracer_provider(), metrics.get_meter_provider()):
        flush = getattr(provider, "force_flush", None)  # the SDK's; the API has none
        if flush is not None:
            flush(int(FLUSH_SECONDS * 1000))
