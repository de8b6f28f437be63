"""Events of a client by its settings: its own, and those of CACHE_METRICS and CACHE_OTEL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from api_client.config.settings import ReaderSettings
from api_client.errors import ConfigurationError
from api_client.observe.events import CompositeEvents, ReaderEvents


def build_events(own: ReaderEvents | None, settings: ReaderSettings) -> ReaderEvents:
    """Return events that never raise: ``own`` and those that settings turn on, or a plain `ReaderEvents` if none.

    Raises:
        ConfigurationError: a package that a setting needs is not installed.
    """
    events = [] if own is None or type(own) is ReaderEvents else [own]
    if settings.metrics:
        with _require_extra("CACHE_METRICS", "prometheus_client", extra="metrics"):
            from api_client.observe.prometheus import default_events as prometheus_events

            events.append(prometheus_events())
    if settings.otel:
        with _require_extra("CACHE_OTEL", "opentelemetry-api", extra="otel"):
            from api_client.observe.otel import default_events as otel_events

            events.append(otel_events())
    return CompositeEvents(*events) if events else ReaderEvents()


@contextmanager
def _require_extra(variable: str, package: str, *, extra: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        allowed = f"it needs {package} (pip install 'refresher[{extra}]'); allowed without it is false"
        raise ConfigurationError(variable, "true", allowed) from error
