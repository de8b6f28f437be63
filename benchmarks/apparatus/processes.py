"""Child processes: readers, which ignore SIGINT (the parent handles it), and Celery workers."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.forkserver import ensure_running
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.apparatus.servers import Servers
from benchmarks.errors import BenchError
from refresher.embedded import GuardedProcess

END_SECONDS: Final = 5.0
# What is not installed is passed over.
_PRELOADED: Final = (
    "benchmarks.stampede.herd", "benchmarks.stampede.readers", "celery", "kombu.transport.redis",
    "api_client.trigger.broker", "dogpile.cache.backends.redis", "cashews.backends.redis", "aiocache.backends.redis",
    "django.core.cache", "django_redis.cache", "neo4j",
)  # fmt: skip


class Child(NamedTuple):
    """A process, and this side of the pipe to it."""

    process: BaseProcess
    pipe: Connection


def prepare() -> None:
    """Start the server that children are forked off, so that it imports while other things start."""
    _context()
    resource_tracker.ensure_running()  # it lets Ctrl-C through again once it has started
    with _interrupts_held():
        ensure_running()


def start_child(target: Callable[..., None], *args: Any) -> Child:
    """Start ``target(pipe, *args)`` in a process of its own; it has to end when the pipe is closed.

    Forked off a server that has nothing but the imports: a fork of this process would take over its connections and
    threads, and hundreds of processes that import for themselves take minutes.
    """
    prepare()
    context = _context()
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs, *args), daemon=True)
    process.start()  # it waits until that server has imported all
    theirs.close()
    return Child(process, ours)


def replies(children: Sequence[Child], within_seconds: float) -> list[Any]:
    """Return what each child sends next.

    Raises:
        BenchError: one ended, or sent nothing in that time.
    """
    received = []
    for process, pipe in children:
        if not pipe.poll(within_seconds):
            raise BenchError(f"a process of readers gave no answer within {within_seconds:g} s")
        try:
            received.append(pipe.recv())
        except EOFError:
            process.join(END_SECONDS)
            raise BenchError(f"a process of readers ended with {process.exitcode}") from None
    return received


def end_children(children: Sequence[Child]) -> None:
    """Let them end, and end those that have not after five seconds."""
    for _, pipe in children:
        pipe.close()
    until = time.monotonic() + END_SECONDS
    for process, _ in children:
        process.join(max(0.0, until - time.monotonic()))
        process.kill()


def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_PRELOADED))
    return context


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Start what is started in here, and all that it starts, deaf to Ctrl-C: it is this process that ends it.

    One that comes meanwhile comes to this process afterwards. (Ignored, it would be lost.)
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 0.05


@contextmanager
def refresh_worker(servers: Servers, graph: Mapping[str, str], module: str, more: Mapping[str, str]) -> Iterator[None]:
    """Run a worker of this project.

    Args:
        servers: of the run.
        graph: where it opens its transactions, as environment variables.
        module: registers the queries.
        more: of its environment: settings that are not the default, and what the queries need.

    Raises:
        BenchError: it did not start.
    """
    environ = {**graph, **servers.environ, "REFRESHER_QUERIES": module, **more}
    with running_worker(servers, ["-A", "refresher"], environ):
        yield


@contextmanager
def running_worker(servers: Servers, app: Sequence[str], environ: Mapping[str, str]) -> Iterator[None]:
    """Run a Celery worker: ``app`` is what comes before the command, ``environ`` is added to this process's.

    Raises:
        BenchError: it did not start.
    """
    with celery_process(app, f"{app[-1]}@{servers.namespace}", "INFO", environ) as worker:
        wait_until_ready(worker)
        yield


@contextmanager
def celery_process(
    app: Sequence[str], name: str, log_level: str, environ: Mapping[str, str], *, options: Sequence[str] = ()
) -> Iterator[GuardedProcess]:
    """Start a Celery worker, which may not be ready yet; in the end it is stopped.

    Args:
        app: what comes before the command.
        name: of the worker, with what stands for its host.
        log_level: as Celery names it.
        environ: is added to this process's.
        options: of the command, besides.
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


def wait_until_ready(worker: GuardedProcess) -> None:
    """Wait until a worker takes messages.

    Raises:
        BenchError: it did not start.
    """
    deadline = time.monotonic() + _START_SECONDS
    while "ready." not in worker.tail_of_log(1_000):
        if worker.poll() is not None or time.monotonic() >= deadline:
            raise BenchError(f"the worker did not start; the end of its log:\n{worker.tail_of_log()}")
        time.sleep(_POLL_SECONDS)
