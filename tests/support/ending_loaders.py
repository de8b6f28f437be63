"""Loads with every possible kind of end, which notice when two loads of one key overlap."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from celery.exceptions import WorkerShutdown, WorkerTerminate

from refresher import query, settings
from refresher.flow import policy
from tests.support.scripted_queries import control_redis
from tests.support.waiting import MAX_WAIT_SECONDS

QUERY: Final = "ends_as_scripted"
OVERLAPS: Final = "overlaps"
LOCK_FOLDER: Final = "TEST_LOCK_FOLDER"
HANG_SECONDS: Final = 600.0

if LOCK_FOLDER in os.environ:  # in a worker; tests import this module, too
    # A lease may be longer than the short budget of these loads: however late a limit ends one, it is not over before.
    policy.lease_seconds = lambda floor_seconds, *_: floor_seconds
    settings.LEASE_LIMIT_MARGIN_SECONDS = MAX_WAIT_SECONDS  # type: ignore[misc]


class Panic(BaseException):
    """An exception like pyo3's for a panic in Rust."""


def _raise(error: BaseException) -> None:
    raise error


def _signal(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def _hang() -> None:
    time.sleep(HANG_SECONDS)


def _hang_deaf() -> None:
    # Neither the soft limit's signal arrives, nor the first of the hard one: only SIGKILL is left.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGTERM})
    _hang()


def _hang_catching_all() -> None:
    while True:
        with suppress(BaseException):
            _hang()


def _abort() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.abort()


RAISES: Final[dict[str, Callable[[], Any]]] = {
    "sys.exit": lambda: sys.exit(3),
    "KeyboardInterrupt": lambda: _raise(KeyboardInterrupt()),
    "WorkerShutdown": lambda: _raise(WorkerShutdown(0)),
    "WorkerTerminate": lambda: _raise(WorkerTerminate(True)),
    "GeneratorExit": lambda: _raise(GeneratorExit()),
    "MemoryError": lambda: _raise(MemoryError()),
    "panic": lambda: _raise(Panic("at src/lib.rs:1")),
}
ENDS_PROCESS: Final[dict[str, Callable[[], Any]]] = {
    "os._exit(1)": lambda: os._exit(1),
    "os._exit(0)": lambda: os._exit(0),
    "SIGTERM": _signal(signal.SIGTERM),
    "SIGKILL": _signal(signal.SIGKILL),
    "SIGSEGV": _signal(signal.SIGSEGV),
    "SIGALRM": _signal(signal.SIGALRM),
    "abort": _abort,
}
HANGS: Final[dict[str, Callable[[], Any]]] = {
    "hangs": _hang,
    "hangs deaf": _hang_deaf,
    "hangs and catches all": _hang_catching_all,
}
ENDS: Final = RAISES | ENDS_PROCESS | HANGS


@query(QUERY, ttl="1h", slots=64, grace="1h")
def ends_as_scripted(tx: Any, key: str) -> Any:
    """End as ``ends:<key>`` in the control's Redis says. The system releases a lock when its process ends."""
    with (Path(os.environ.get(LOCK_FOLDER, tempfile.gettempdir())) / key.replace("/", "_")).open("w") as lock:
        with control_redis() as control:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                control.rpush(OVERLAPS, key)
            # Read before the call is recorded: the test that waits for the call may change it at once.
            way = control.get(f"ends:{key}")
            number = control.rpush(f"calls:{key}", os.getpid())
        if way is not None:
            ENDS[str(way)]()
        return {"key": key, "load": number}
