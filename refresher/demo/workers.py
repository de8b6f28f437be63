"""The demo's successive Celery workers with their metrics, and Flower. None of them outlives the demo."""

from __future__ import annotations

import http.client
import secrets
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from refresher.demo.errors import DemoError
from refresher.embedded import GuardedProcess, free_port
from refresher.ops.http import get, is_ok

HOST: Final = "127.0.0.1"
START_SECONDS: Final = 60.0
SCRAPE_SECONDS: Final = 0.5
"""Interval of scrapes, each of which costs the worker 30 ms of CPU time."""
_STOP_SECONDS: Final = 2.0
_FLOWER_USER: Final = "demo"


@dataclass(slots=True)
class WorkerCounts:
    """Counts of workers since their start. ``running`` is the number of loads, ``lead_seconds`` the sum of all δ."""

    committed: int = 0
    rejected_for: Counter[str] = field(default_factory=Counter)
    retried: int = 0
    abandoned: int = 0
    running: int = 0
    lead_seconds: float = 0.0

    @property
    def loads(self) -> int:
        """Number of queries that the graph has run."""
        return self.committed + self.rejected_for.total() + self.retried + self.abandoned

    def __add__(self, other: WorkerCounts) -> WorkerCounts:
        return WorkerCounts(
            self.committed + other.committed, self.rejected_for + other.rejected_for, self.retried + other.retried,
            self.abandoned + other.abandoned, self.running + other.running, self.lead_seconds + other.lead_seconds,
        )  # fmt: skip


def parse_metrics(exposition: str) -> tuple[WorkerCounts, bool]:
    """Return a worker's counts, and whether it consumes messages, from its Prometheus exposition."""
    totals, rejected_for = Counter[str](), Counter[str]()
    consumes = False
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            totals[sample.name] += sample.value  # type: ignore[assignment] # a float, whole except for seconds
            if sample.name == "xfetch_stale_write_rejected_total":
                rejected_for[sample.labels["why"]] += int(sample.value)
            consumes |= sample.name == "refresher_ready" and sample.labels == {"part": "consumer"} and sample.value == 1
    counts = WorkerCounts(
        committed=int(totals["xfetch_refresh_completed_total"]),
        rejected_for=rejected_for,
        retried=int(totals["xfetch_refresh_retried_total"]),
        abandoned=int(totals["xfetch_refresh_failed_total"]),
        running=int(totals["xfetch_active_refreshes"]),
        lead_seconds=totals["xfetch_refresh_lead_seconds_sum"],
    )
    return counts, consumes


class Worker:
    """A running Celery worker, whose metrics a thread of its own scrapes twice a second.

    Attributes:
        counts: the counts of the last scrape.
        ready_at, first_commit_at: the times when a scrape first showed that (monotonic, s).
    """

    def __init__(self, process: GuardedProcess, metrics_port: int) -> None:
        self.process: GuardedProcess = process
        self.counts: WorkerCounts = WorkerCounts()
        self.ready_at: float | None = None
        self.first_commit_at: float | None = None
        self._port = metrics_port
        threading.Thread(target=self._scrape, name="metrics", daemon=True).start()

    def _scrape(self) -> None:
        while self.process.returncode is None:
            try:
                status, body = get(HOST, self._port, "/metrics")
            except (OSError, http.client.HTTPException):
                status, body = HTTPStatus.SERVICE_UNAVAILABLE, b""
            if status == HTTPStatus.OK:
                self.counts, consumes = parse_metrics(body.decode())
                now = time.monotonic()
                self.ready_at = self.ready_at or (now if consumes else None)
                self.first_commit_at = self.first_commit_at or (now if self.counts.committed else None)
            time.sleep(SCRAPE_SECONDS)


class Workers:
    """The successive Celery workers of a run.

    Args:
        environ: their whole environment, including passwords.
        namespace: a part of their names, which makes these unique on the broker.
        logs: a directory for their logs.
    """

    def __init__(self, environ: Mapping[str, str], namespace: str, logs: Path) -> None:
        # A killed pool's temporary files are removed with the logs.
        self._environ = {**environ, "TMPDIR": str(logs), "CACHE_METRICS_ADDRESS": HOST}
        self._environ.pop("PROMETHEUS_MULTIPROC_DIR", None)
        self._namespace, self._logs = namespace, logs
        self._started: list[Worker] = []

    @property
    def current(self) -> Worker:
        """The last worker that was started."""
        return self._started[-1]

    @property
    def counts(self) -> WorkerCounts:
        """The counts of all workers together."""
        total = sum((worker.counts for worker in self._started), WorkerCounts())
        total.running = 0 if self.current.process.returncode is not None else self.current.counts.running
        return total

    def start(self) -> None:
        """Start a worker; `ready_at` tells when it is ready."""
        name, port = f"worker-{len(self._started) + 1}", free_port()
        argv = [
            sys.executable, "-m", "celery", "-A", "refresher", "worker", "--without-gossip", "--without-mingle",
            "-n", f"{name}@{self._namespace}", "-l", "WARNING",
        ]  # fmt: skip
        process = GuardedProcess.start(
            argv, log_file=self._logs / f"{name}.log", env={**self._environ, "CACHE_METRICS_PORT": str(port)},
            remove_when_orphaned=self._logs,
        )  # fmt: skip
        self._started.append(Worker(process, port))

    def ready_at(self) -> float | None:
        """Return when the current worker became ready (monotonic, s), or None.

        Raises:
            DemoError: the worker has ended.
        """
        _check_runs(self.current.process, "the worker")
        return self.current.ready_at

    def wait_until_ready(self) -> None:
        """Wait until the current worker is ready.

        Raises:
            DemoError: the worker ended, or was not ready within a minute.
        """
        _wait_until(lambda: self.current.ready_at is not None, self.current.process, "the worker")

    def kill(self) -> None:
        """SIGKILL the current worker and its pool, and wait until all are gone."""
        self.current.process.kill()

    def close(self) -> None:
        """End the current worker, gracefully if it ends within some seconds."""
        if self._started:
            self.current.process.terminate(_STOP_SECONDS)


@dataclass(frozen=True, slots=True)
class Flower:
    """A running Flower."""

    process: GuardedProcess
    port: int
    password: str

    @classmethod
    def start(cls, environ: Mapping[str, str], logs: Path) -> Flower | None:
        """Start Flower on a free port of the loopback address; return None if it is not installed."""
        if find_spec("flower") is None:
            return None
        port, password = free_port(), secrets.token_urlsafe(12)
        settings = {"FLOWER_PORT": str(port), "FLOWER_BASIC_AUTH": f"{_FLOWER_USER}:{password}"}
        process = GuardedProcess.start(
            [sys.executable, "-m", "celery", "-A", "refresher", "flower"],
            log_file=logs / "flower.log",
            env={**environ, **settings},
            remove_when_orphaned=logs,
        )
        return cls(process, port, password)

    @property
    def contact(self) -> str:
        """URL and credentials, for the user."""
        return f"http://{HOST}:{self.port}, user {_FLOWER_USER}, password {self.password}"

    def close(self) -> None:
        """End Flower."""
        self.process.terminate(_STOP_SECONDS)

    def wait_until_ready(self) -> None:
        """Wait until Flower answers.

        Raises:
            DemoError: Flower ended, or did not answer within a minute.
        """
        _wait_until(lambda: is_ok(HOST, self.port, "/healthcheck"), self.process, "Flower")


def _wait_until(is_ready: Callable[[], bool], process: GuardedProcess, what: str) -> None:
    if not process.wait_until(is_ready, START_SECONDS):
        _check_runs(process, what)
        tail = process.tail_of_log()
        raise DemoError(f"{what} was not ready within {START_SECONDS:g} s; the end of its log:\n{tail}")


def _check_runs(process: GuardedProcess, what: str) -> None:
    if process.returncode is not None:
        raise DemoError(f"{what} ended unexpectedly; the end of its log:\n{process.tail_of_log()}")
