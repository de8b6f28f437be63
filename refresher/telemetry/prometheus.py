"""Prometheus endpoint of a worker, with the metrics of all its pool's processes together. Needs prometheus_client.

prometheus_client's multiprocess mode adds them up: each process of the pool writes its own files, and the worker's main
process, where Celery's consumer runs, serves the sums of all files.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from refresher.telemetry.metrics import READY, WORKER_METRICS, MeteredWorkerEvents, Values, WorkerGauges, look_up

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from prometheus_client import Metric
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import CollectorRegistry

    from refresher.settings import WorkerSettings

log: Final = logging.getLogger(__name__)
FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"
PREFIX: Final = "refresher-metrics-"
OWNER: Final = "owner"
"""File in a folder that its worker keeps locked."""
ADDED_UP: Final = ("counter", "histogram", "summary")
TIDY_SECONDS: Final = 60.0
DEAD: Final = "dead"
"""Stands for all ended processes in the names of prometheus_client's files."""


class GaugeCollector:
    """Looks gauges up at each scrape, except those of a broker or cache that is not ready and would not answer.

    Args:
        ready: checks, in bounded time, whether the worker is ready; returns None or the fault for each part.
        gauges: the gauges.
    """

    def __init__(self, ready: Callable[[], Mapping[str, str | None]], gauges: WorkerGauges) -> None:
        self._ready = ready
        self.gauges: WorkerGauges = gauges

    def describe(self) -> list[Metric]:
        """Return nothing, since a registry would otherwise collect."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges."""
        from prometheus_client.core import GaugeMetricFamily

        problems: Mapping[str, str | None] = {}

        def readiness() -> Values:
            nonlocal problems
            problems = self._ready()
            return {READY: {(part,): float(problem is None) for part, problem in problems.items()}}

        for part, look, _ in (("", readiness, (READY,)), *self.gauges.parts()):
            if problems.get(part):
                continue
            for metric, values in look_up(look).items():
                family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
                for labels, value in values.items():
                    family.add_metric(labels, value)
                yield family


class PrometheusWorkerEvents(MeteredWorkerEvents):
    """Counts a worker's events in Prometheus metrics.

    Args:
        registry: the registry for the metrics; None if another process collects them.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        from api_client.observe.prometheus import PrometheusBackend

        super().__init__(PrometheusBackend(WORKER_METRICS, registry))


class MetricsServer:
    """Serves the metrics of a worker's processes from its main process; nothing before `start` or without a port.

    Args:
        settings: the worker's settings, with the address and port.
        gauges: the gauges to look up at each scrape.

    Attributes:
        events: the counting hooks of this process; None before `start`.
    """

    def __init__(self, settings: WorkerSettings, gauges: GaugeCollector) -> None:
        self._settings, self._gauges = settings, gauges
        self.events: PrometheusWorkerEvents | None = None
        self._server: WSGIServer | None = None
        self._own_folder: OwnFolder | None = None
        self._over = threading.Event()

    def start(self) -> None:
        """Start to count and to serve; if that fails, log it, and let the worker refresh without metrics."""
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

    def after_fork(self) -> None:
        """Close the port in a pool process, since it belongs to the main process."""
        if self._server is not None:
            self._server.socket.close()
            self._server = self._own_folder = None

    def close(self) -> None:
        """Stop serving, and remove the files unless their folder was given."""
        self._over.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        if self._own_folder is not None:
            self._own_folder.remove()
            self._own_folder = None

    def _tidy(self, processes: ProcessesCollector) -> None:
        while not self._over.wait(TIDY_SECONDS):
            try:
                processes.tidy()
            except Exception as error:  # noqa: BLE001 - a file may hold anything, and this thread has to go on
                log.warning("the metrics of processes that have ended could not be added up: %s", error)

    def _serve(self) -> None:
        self._own_folder = _use_folder()
        from prometheus_client import CollectorRegistry, start_http_server

        registry = CollectorRegistry()
        registry.register(self._gauges)
        processes = ProcessesCollector(Path(os.environ[FOLDER]))
        registry.register(processes)
        self._over.clear()
        threading.Thread(target=self._tidy, args=(processes,), name="refresher-metrics", daemon=True).start()
        self._server, _ = start_http_server(
            self._settings.metrics_port, addr=self._settings.metrics_address, registry=registry
        )
        self.events = PrometheusWorkerEvents()
        self.events.expect(query.name for query in self._gauges.gauges.queries)


class ProcessesCollector:
    """Collects the counts of the pool's processes, each from its own files, and all dead ones from a common file.

    A pool replaces its processes, so the files would grow in number as long as the worker runs, and slow each scrape.
    """

    def __init__(self, folder: Path) -> None:
        from prometheus_client.multiprocess import MultiProcessCollector

        self._folder = folder
        self._collector = MultiProcessCollector(None, str(folder))  # type: ignore[no-untyped-call]

    def describe(self) -> list[Metric]:
        """Return nothing, since a registry would otherwise collect."""
        return []

    def collect(self) -> list[Metric]:
        """Return the sums over all processes."""
        with self._locked():
            self._add_up_dead_processes()
            return list(self._collector.collect())  # type: ignore[no-untyped-call]

    def tidy(self) -> None:
        """Add up the dead processes now, even if nobody scrapes, because their files would fill the disk."""
        with self._locked():
            self._add_up_dead_processes()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the files against scrapes and other workers with this folder."""
        with (self._folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                yield
            finally:
                # Closing is not enough, since a process forked meanwhile has the file open too.
                fcntl.flock(lock, fcntl.LOCK_UN)

    def _add_up_dead_processes(self) -> None:
        from prometheus_client.mmap_dict import MmapedDict

        for file in self._folder.glob("*_*.db"):
            kind, _, pid = file.stem.rpartition("_")
            if not pid.isdigit() or _is_alive(int(pid)):
                continue
            if kind in ADDED_UP:
                sums = MmapedDict(str(self._folder / f"{kind}_{DEAD}.db"))  # type: ignore[no-untyped-call]
                with suppress(struct.error, RuntimeError):  # killed before the file was complete
                    for name, value, *_ in MmapedDict.read_all_values_from_file(file):  # type: ignore[no-untyped-call]
                        sums.write_value(name, sums.read_value(name)[0] + value, 0.0)  # type: ignore[no-untyped-call]
                sums.close()  # type: ignore[no-untyped-call]
                file.unlink(missing_ok=True)
            elif kind.startswith("gauge_live"):  # the runs of a killed process are over
                file.unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class OwnFolder:
    """A folder for one worker's files. If this worker is killed before `remove`, the next one removes it.

    It is locked as long as a process of its worker lives, since pool processes inherit the lock.
    """

    def __init__(self) -> None:
        self.path: Path = Path(tempfile.mkdtemp(prefix=PREFIX))
        unlocked = self.path / "unlocked"
        self._lock = unlocked.open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        unlocked.rename(self.path / OWNER)  # from now on `remove_abandoned` looks at it

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()

    @staticmethod
    def remove_abandoned() -> None:
        """Remove the folders of this user's killed workers."""
        for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
            with suppress(OSError):  # its worker lives, or another one is removing it
                if folder.lstat().st_uid == os.geteuid():
                    with (folder / OWNER).open() as lock:
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        shutil.rmtree(folder)


def _use_folder() -> OwnFolder | None:
    """Make prometheus_client write into a folder from now on; return the folder if it was made here."""
    own = None
    if not os.environ.get(FOLDER):
        OwnFolder.remove_abandoned()
        own = OwnFolder()
        os.environ[FOLDER] = str(own.path)
    from prometheus_client import values

    if not values.ValueClass._multiprocess:  # noqa: SLF001 - it has no public name
        # It was imported without the variable, by Flower, whose command Celery loads with all others, or by a query's
        # module. Metrics made from now on are in files.
        values.ValueClass = values.MultiProcessValue()  # type: ignore[no-untyped-call]
    return own
