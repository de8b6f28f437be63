"""Celery workers as child processes."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.apparatus.control import CONTROL_URL
from benchmarks.apparatus.servers import Servers
from benchmarks.errors import BenchError
from refresher.embedded import GuardedProcess

_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 0.05


@contextmanager
def refresh_worker(
    servers: Servers, graph: Mapping[str, str], module: str, more: Mapping[str, str]
) -> Iterator[GuardedProcess]:
    """Run a worker of this project; ``module`` registers its queries, ``more`` is added to its environment."""
    with running_worker(servers, ["-A", "refresher"], worker_environ(servers, graph, module) | dict(more)) as worker:
        yield worker


def worker_environ(servers: Servers, graph: Mapping[str, str], module: str) -> dict[str, str]:
    """Return the environment of a worker of this project, including passwords."""
    return {**graph, **servers.environ, "REFRESHER_QUERIES": module, CONTROL_URL: servers.control_url}


@contextmanager
def running_worker(servers: Servers, app: Sequence[str], environ: Mapping[str, str]) -> Iterator[GuardedProcess]:
    """Run a Celery worker; ``app`` are the arguments before the command, ``environ`` extends this process's."""
    with celery_process(app, f"{app[-1]}@{servers.namespace}", "INFO", environ) as worker:
        deadline = time.monotonic() + _START_SECONDS
        while "ready." not in worker.tail_of_log(1_000):
            if worker.poll() is not None or time.monotonic() >= deadline:
                raise BenchError(f"the worker did not start; the end of its log:\n{worker.tail_of_log()}")
            time.sleep(_POLL_SECONDS)
        yield worker


@contextmanager
def celery_process(
    app: Sequence[str], name: str, log_level: str, environ: Mapping[str, str], *, options: Sequence[str] = ()
) -> Iterator[GuardedProcess]:
    """Start a Celery worker, which may not be ready yet, and stop it at the end.

    The arguments are those of `running_worker`; ``name`` includes a stand-in for the host, and ``options`` follow the
    command.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        argv = [
            sys.executable, "-m", "celery", *app, "worker", "--without-gossip", "--without-mingle",
            "-n", name, "-l", log_level, *options,
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
