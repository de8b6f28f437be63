"""A worker's events as Prometheus metrics, on a port of its own: all processes of its pool together.

Needs prometheus_client. Its multiprocess mode does the adding up: each process of the pool writes into files of its
own, and the worker's main process, where Celery's consumer runs, serves what all of them have written.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from api_client.events import together
from refresher.events import WorkerEvents
from refresher.metric_names import ACTIVE, COUNTERS, DROPPED, DURATIONS, HELD, SECONDS_BUCKETS

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from prometheus_client import Metric
    from prometheus_client.registry import CollectorRegistry

    from refresher.gauges import WorkerGauges
    from refresher.settings import WorkerSettings

log: Final = logging.getLogger(__name__)

FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"


class PrometheusWorkerEvents(WorkerEvents):
    """Counts what a worker tells; all metrics but the last are labelled by ``query``.

    Args:
        registry: where the metrics are registered; none, where another process collects them.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        from prometheus_client import Counter, Gauge, Histogram

        self._counters = {
            name: Counter(name, help_, ("query", *labels), registry=registry)
            for name, (labels, help_) in COUNTERS.items()
        }
        self._dropped = Counter(*DROPPED, ("reason",), registry=registry)
        self._durations = {
            name: Histogram(name, help_, ("query",), registry=registry, buckets=SECONDS_BUCKETS)
            for name, help_ in DURATIONS.items()
        }
        self._gauges = [
            Gauge(name, help_, ("query",), registry=registry, multiprocess_mode="livesum")
            for name, help_ in ACTIVE.items()
        ]

    def expect(self, queries: Iterable[str]) -> None:
        """Show these at 0: what a counter has when it is first seen is no increase to Prometheus."""
        for query in queries:
            self._counters["xfetch_refresh_completed"].labels(query)

    def acquired(self, query: str) -> None:
        """Count a run that begins."""
        for gauge in self._gauges:
            gauge.labels(query).inc()

    def ended(self, query: str) -> None:
        """Count a run that has ended."""
        for gauge in self._gauges:
            gauge.labels(query).dec()

    def committed(self, query: str, *, delta_seconds: float, run_seconds: float, as_stale: bool) -> None:
        """Count a value stored."""
        self._counters["xfetch_refresh_completed"].labels(query).inc()
        self._durations["xfetch_refresh_duration_seconds"].labels(query).observe(run_seconds)
        self._durations["xfetch_refresh_lead_seconds"].labels(query).observe(delta_seconds)

    def rejected(self, query: str, *, why: str) -> None:
        """Count a write that was refused."""
        self._counters["xfetch_stale_write_rejected"].labels(query, why).inc()

    def skipped(self, query: str, *, why: str) -> None:
        """Count a message with nothing to do."""
        self._counters["xfetch_refresh_skipped"].labels(query, why).inc()
        if why in HELD:
            self._counters["xfetch_lock_contention"].labels(query).inc()

    def retried(self, query: str, *, kind: str, attempt: int, pause_seconds: float) -> None:
        """Count a failed attempt that will be repeated."""
        self._counters["xfetch_refresh_retried"].labels(query, kind).inc()

    def failed(self, query: str, *, kind: str, attempts: int) -> None:
        """Count a refresh that was given up."""
        self._counters["xfetch_refresh_failed"].labels(query, kind).inc()

    def message_dropped(self, *, reason: str) -> None:
        """Count a message that was dropped unread."""
        self._dropped.labels(reason).inc()


class WorkerMetrics:
    """Serves what a worker's processes count, from its main process; nothing before `start`, or without a port.

    Args:
        settings: whose address and port.
        gauges: what is asked at each scrape.
    """

    def __init__(self, settings: WorkerSettings, gauges: WorkerGauges) -> None:
        self._settings, self._gauges = settings, gauges
        self._events: PrometheusWorkerEvents | None = None
        self._server: WSGIServer | None = None
        self._own_folder: str | None = None
        self._pid = os.getpid()

    def start(self) -> None:
        """Begin to count and to serve. What keeps it from that is logged; a worker without metrics still refreshes."""
        if not self._settings.metrics_port:
            return
        where = f"{self._settings.metrics_address}:{self._settings.metrics_port}"
        try:
            self._serve()
        except ModuleNotFoundError:
            log.error("no metrics at %s: prometheus_client is missing, pip install 'refresher[metrics]'", where)
        except OSError as error:
            log.error("no metrics at %s: %s", where, error)
            self.close()
        else:
            log.info("metrics: http://%s/metrics", where)

    def and_of(self, events: WorkerEvents | None) -> WorkerEvents:
        """Return what tells ``events`` and counts, too."""
        return together([told for told in (events, self._events) if told is not None], WorkerEvents)

    def after_fork(self) -> None:
        """In a process of the pool: let go of the port, which is the main process's."""
        if self._server is None or self._pid == os.getpid():
            return  # the solo pool's one process is the main one
        self._server.socket.close()
        self._server = None
        self._own_folder = None

    def close(self) -> None:
        """Stop serving, and remove the files, unless their folder was given."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        if self._own_folder is not None:
            shutil.rmtree(self._own_folder, ignore_errors=True)
            self._own_folder = None

    def _serve(self) -> None:
        self._pid = os.getpid()
        self._own_folder = _use_folder()
        from prometheus_client import CollectorRegistry, start_http_server
        from prometheus_client.multiprocess import MultiProcessCollector

        registry = CollectorRegistry()
        self._gauges.register(registry)
        # Before the files are read: what a process was at when it was killed does not go on.
        registry.register(_ForgetTheDead())
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        self._server, _ = start_http_server(
            self._settings.metrics_port, addr=self._settings.metrics_address, registry=registry
        )
        self._events = PrometheusWorkerEvents()
        self._events.expect(query.name for query in self._gauges.queries)


class _ForgetTheDead:
    """Collects nothing, and removes the gauges of processes that are gone."""

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> list[Metric]:
        from prometheus_client.multiprocess import mark_process_dead

        for file in Path(os.environ[FOLDER]).glob("gauge_live*_*.db"):
            pid = int(file.stem.rpartition("_")[2])
            if not _is_alive(pid):
                mark_process_dead(pid)  # type: ignore[no-untyped-call]
        return []


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _use_folder() -> str | None:
    """Have prometheus_client write into a folder from now on; return it where it was made here."""
    given = os.environ.get(FOLDER)
    folder = given or os.environ.setdefault(FOLDER, tempfile.mkdtemp(prefix="refresher-metrics-"))
    from prometheus_client import values

    if not values.ValueClass._multiprocess:  # noqa: SLF001 - it has no public name
        # It was imported without the variable: by Flower, whose command Celery loads with all others, or by a query's
        # module. What counts from now on does so in files.
        values.ValueClass = values.MultiProcessValue()  # type: ignore[no-untyped-call]
    return None if given else folder
