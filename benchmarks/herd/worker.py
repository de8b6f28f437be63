"""The worker of a benchmark: a real Celery worker in processes of its own."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.errors import BenchError
from benchmarks.herd import queries
from benchmarks.payloads import PayloadKind
from benchmarks.places import Place
from refresher.embedded import ArcadeDbServer, GuardedProcess

_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 0.05


@contextmanager
def celery_worker(place: Place, payload: PayloadKind) -> Iterator[None]:
    """Run a worker of `herd.queries` with default settings, but for the addresses, and with a graph of its own.

    Raises:
        EmbeddedServerError: the graph did not start.
        BenchError: the worker did not.
    """
    with ArcadeDbServer.start() as graph:
        more = {queries.CONTROL_URL: place.control_url, queries.PAYLOAD: payload.value}
        with refresh_worker(place, graph, queries.__name__, more):
            yield


@contextmanager
def refresh_worker(place: Place, graph: ArcadeDbServer, module: str, more: Mapping[str, str]) -> Iterator[None]:
    """Run a worker of this project.

    Args:
        place: the servers.
        graph: where it opens its transactions.
        module: registers the queries.
        more: of its environment: settings that are not the default, and what the queries need.

    Raises:
        BenchError: it did not start.
    """
    environ = {
        **place.environ,
        "REFRESHER_QUERIES": module,
        **graph.environ,
        **more,
    }
    with running_worker(place, ["-A", "refresher"], environ):
        yield


@contextmanager
def running_worker(place: Place, app: Sequence[str], environ: Mapping[str, str]) -> Iterator[None]:
    """Run a Celery worker: ``app`` is what comes before the command, ``environ`` is added to this process's.

    Raises:
        BenchError: it did not start.
    """
    with celery_process(app, f"{app[-1]}@{place.namespace}", "INFO", environ) as worker:
        _wait_until_ready(worker)
        yield


@contextmanager
def celery_process(
    app: Sequence[str], name: str, log_level: str, environ: Mapping[str, str]
) -> Iterator[GuardedProcess]:
    """Start a Celery worker, which may not be ready yet; in the end it is stopped.

    Args:
        app: what comes before the command.
        name: of the worker, with what stands for its host.
        log_level: as Celery names it.
        environ: is added to this process's.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        argv = [
            sys.executable, "-m", "celery", *app, "worker", "--without-gossip", "--without-mingle",
            "-n", name, "-l", log_level,
        ]  # fmt: skip
        process = GuardedProcess.start(
            argv,
            log_file=Path(folder) / "worker.log",
            env={**os.environ, "TMPDIR": folder, **environ},
            remove_when_orphaned=Path(folder),
        )
        try:
            yield process
        finally:
            process.terminate(_STOP_SECONDS)


def _wait_until_ready(worker: GuardedProcess) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while "ready." not in worker.tail_of_log(1_000):
        if worker.poll() is not None or time.monotonic() >= deadline:
            raise BenchError(f"the worker did not start; the end of its log:\n{worker.tail_of_log()}")
        time.sleep(_POLL_SECONDS)
