"""A worker's events as Prometheus metrics, on a port of its own: all processes of its pool together.

Needs prometheus_client. Its multiprocess mode does the adding up: each process of the pool writes into files of its
own, and the worker's main process, where Celery's consumer runs, serves what all of them have written.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from api_client.observe.events import together
from refresher.flow.dead_letters import letters_by_query
from refresher.flow.events import WorkerEvents

if TYPE_CHECKING:
    from prometheus_client import Metric
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import CollectorRegistry

    from refresher.flow.dead_letters import DeadLetter
    from refresher.queries import Registry

log: Final = logging.getLogger(__name__)


class Readiness(Protocol):
    """Whether a worker is ready."""

    @property
    def checks(self) -> Mapping[str, str | None]:
        """What was checked: None, or what is wrong with it."""


@dataclass(frozen=True, slots=True)
class WorkerGauges:
    """Gauges that are asked for at each scrape. Needs prometheus_client.

    Args:
        ready: whether the worker is ready, bounded in time. What it says is not well is not asked once more.
        waiting: how many refreshes wait in the broker.
        letters: the dead letters that are kept.
        queries: what the worker can load.

    What can't be told is left out: a gap in the graph says so.
    """

    ready: Callable[[], Readiness]
    waiting: Callable[[], int]
    letters: Callable[[], Iterable[DeadLetter]]
    queries: Registry

    def register(self, registry: CollectorRegistry) -> None:
        """Have a registry collect them."""
        for gauges in (self.of_now, self.times):
            registry.register(_AtEachScrape(gauges))

    def of_now(self) -> Iterator[GaugeMetricFamily]:
        """Yield what the worker's surroundings are like now."""
        from prometheus_client.core import GaugeMetricFamily

        checks = self.ready().checks
        ready = GaugeMetricFamily(
            "refresher_ready", "Whether all is well with what the worker needs: 1, or 0", labels=("part",)
        )
        for part, problem in checks.items():
            ready.add_metric((part,), float(problem is None))
        yield ready
        if not checks.get("broker"):
            yield from _told(self._queue)
        if not checks.get("cache"):
            yield from _told(self._dead)

    def times(self) -> Iterator[GaugeMetricFamily]:
        """Yield what the queries say of their values."""
        ttls = {query.name: query.ttl_seconds for query in self.queries}
        graces = {query.name: query.grace_seconds for query in self.queries}
        yield _by_query("xfetch_query_ttl_seconds", "Soft expiry of the query's values after their load", ttls)
        yield _by_query("xfetch_query_grace_seconds", "For how long they may be served after it", graces)

    def _queue(self) -> Iterator[GaugeMetricFamily]:
        from prometheus_client.core import GaugeMetricFamily

        yield GaugeMetricFamily(
            "xfetch_refresh_queue_size", "Early and stale refreshes that wait", value=self.waiting()
        )

    def _dead(self) -> Iterator[GaugeMetricFamily]:
        kept, quarantined = letters_by_query(self.letters(), (query.name for query in self.queries))
        yield _by_query("xfetch_dead_letters", "Dead letters that are kept", kept)
        yield _by_query(
            "xfetch_quarantined_keys", "Keys of which several refreshes in a row were given up", quarantined
        )


class _AtEachScrape:
    """Collects gauges when they are asked for."""

    def __init__(self, gauges: Callable[[], Iterable[GaugeMetricFamily]]) -> None:
        self._gauges = gauges

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> list[GaugeMetricFamily]:
        return _told(self._gauges)


def _told(gauges: Callable[[], Iterable[GaugeMetricFamily]]) -> list[GaugeMetricFamily]:
    try:
        return list(gauges())
    except Exception as error:  # noqa: BLE001 - whatever is away now: the scrape goes on
        log.warning("a scrape goes without some gauges: %s", type(error).__name__)
        return []


def _by_query(name: str, help_: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    from prometheus_client.core import GaugeMetricFamily

    gauge = GaugeMetricFamily(name, help_, labels=("query",))
    for query, value in values.items():
        gauge.add_metric((query,), value)
    return gauge


SECONDS_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 150, 300)
HELD: Final = frozenset({"running", "retrying"})
"""The states of a lease record by which another run held what a message asked for."""

# Counters, each with a label ``query`` and these; the names end with _total where they are shown.
COUNTERS: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "xfetch_refresh_completed": ((), "Values stored"),
    "xfetch_refresh_failed": (("kind",), "Refreshes that were given up"),
    "xfetch_refresh_retried": (("kind",), "Failed attempts that were to be repeated"),
    "xfetch_refresh_skipped": (
        ("why",),
        "Messages with nothing to do: already_fresh, the state that held the key, or no_slot",
    ),
    "xfetch_stale_write_rejected": (("why",), "Writes that were refused: superseded, invalidated, lost"),
    "xfetch_lock_contention": ((), "Messages that found another run at their key"),
}
DROPPED: Final = ("refresher_messages_dropped", "Messages that were none, by what was wrong")
# Histograms over SECONDS_BUCKETS.
DURATIONS: Final = {
    "xfetch_refresh_duration_seconds": "From the lease to the commit",
    "xfetch_refresh_lead_seconds": "From the claim to the commit (δ)",
}
ACTIVE: Final = {
    "xfetch_active_refreshes": "Runs that go on",
    "xfetch_active_locks": "Leases that are held",
}


if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from prometheus_client import Metric
    from prometheus_client.registry import CollectorRegistry

    from refresher.settings import WorkerSettings


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

    def with_metrics(self, events: WorkerEvents | None) -> WorkerEvents:
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
        registry.register(_DeadProcessReaper())
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        self._server, _ = start_http_server(
            self._settings.metrics_port, addr=self._settings.metrics_address, registry=registry
        )
        self._events = PrometheusWorkerEvents()
        self._events.expect(query.name for query in self._gauges.queries)


class _DeadProcessReaper:
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
