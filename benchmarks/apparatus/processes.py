"""Child processes of readers. They ignore SIGINT: the parent handles it."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.forkserver import ensure_running
from multiprocessing.process import BaseProcess
from typing import Any, Final, NamedTuple

from benchmarks.errors import BenchError

END_SECONDS: Final = 5.0
# Modules that are not installed are skipped.
_PRELOADED: Final = (
    "benchmarks.stampede.herd", "benchmarks.stampede.readers", "celery", "kombu.transport.redis",
    "api_client.trigger.broker", "dogpile.cache.backends.redis", "cashews.backends.redis", "aiocache.backends.redis",
    "django.core.cache", "django_redis.cache", "neo4j",
)  # fmt: skip


class Child(NamedTuple):
    """A process, and this side of its pipe."""

    process: BaseProcess
    pipe: Connection


def prepare() -> None:
    """Start the server that forks children, so that it imports while other things start."""
    _context()
    resource_tracker.ensure_running()  # it lets Ctrl-C through again once it has started
    with _interrupts_held():
        ensure_running()


def start_child(target: Callable[..., None], *args: Any) -> Child:
    """Start ``target(pipe, *args)`` in a process of its own, which has to end when the pipe is closed.

    A server that has only done the imports forks it: a fork of this process would inherit its connections and threads,
    and hundreds of processes with their own imports take minutes.
    """
    prepare()
    context = _context()
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs, *args), daemon=True)
    process.start()  # waits until that server has imported everything
    theirs.close()
    return Child(process, ours)


def replies(children: Sequence[Child], within_seconds: float) -> list[Any]:
    """Return the next reply of each child."""
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
    """Let the children end, and kill those that have not ended after five seconds."""
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
    """Start processes within the block, and their children, deaf to Ctrl-C, since this process ends them.

    A Ctrl-C during the block reaches this process afterwards. (If it were ignored, it would be lost.)
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
