"""The worker of a herd: a real Celery worker in processes of its own, with a graph, since it opens a transaction."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from refresher.bench.errors import BenchError
from refresher.bench.herd import queries
from refresher.bench.payloads import PayloadKind
from refresher.bench.places import Place
from refresher.embedded import ArcadeDbServer, GuardedProcess

_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 0.05


@contextmanager
def celery_worker(place: Place, payload: PayloadKind) -> Iterator[None]:
    """Run a worker with default settings, but for the addresses.

    Raises:
        EmbeddedServerError: the graph did not start.
        BenchError: the worker did not.
    """
    with ArcadeDbServer.start() as graph, tempfile.TemporaryDirectory(prefix="bench-") as folder:
        environ = os.environ | {
            "CACHE_REDIS_URL": place.cache_url,
            "CELERY_BROKER_URL": place.broker_url,
            "CACHE_NAMESPACE": place.namespace,
            "REFRESHER_QUERIES": queries.__name__,
            queries.CONTROL_URL: place.control_url,
            queries.PAYLOAD: payload.value,
            "NEO4J_URI": graph.bolt_uri,
            "NEO4J_USER": graph.user,
            "NEO4J_PASSWORD": graph.password,
            "NEO4J_DATABASE": graph.database,
        }
        with celery_process(environ, place.namespace, Path(folder)):
            yield


@contextmanager
def celery_process(environ: Mapping[str, str], namespace: str, folder: Path) -> Iterator[None]:
    """Run a worker in that environment, from when it consumes.

    Args:
        environ: all of it, so that no password is on a command line.
        namespace: makes its name.
        folder: for its log, and whatever else it writes; gone when it is orphaned.

    Raises:
        BenchError: it did not start.
    """
    argv = [
        sys.executable, "-m", "celery", "-A", "refresher", "worker", "--without-gossip", "--without-mingle",
        "-n", f"worker@{namespace}", "-l", "INFO",
    ]  # fmt: skip
    worker = GuardedProcess.start(
        argv, log_file=folder / "worker.log", env={**environ, "TMPDIR": str(folder)}, remove_when_orphaned=folder
    )
    try:
        _wait_until_ready(worker)
        yield
    finally:
        worker.terminate(_STOP_SECONDS)


def _wait_until_ready(worker: GuardedProcess) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while "ready." not in worker.tail_of_log(1_000):
        if worker.poll() is not None or time.monotonic() >= deadline:
            raise BenchError(f"the worker did not start; the end of its log:\n{worker.tail_of_log()}")
        time.sleep(_POLL_SECONDS)
