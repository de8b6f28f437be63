"""Snapshots of the state that belongs to a whole process, taken inside a host application."""

from __future__ import annotations

import asyncio
import atexit
import gc
import locale
import logging
import multiprocessing
import os
import re
import signal
import socket
import sys
import threading
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import psutil

from tests.acceptance.hosts.table import PORTS

Snapshot: TypeAlias = dict[str, list[str]]
"""By aspect, what there is; a thing that is there twice is listed twice."""

_PRISTINE_CELERY: Final = (
    "default app None",
    "current app None",
    "pool limit 10",
    *(f"disabled application/x-{kind}" for kind in ("yaml", "msgpack", "python-serialize")),
    *(f"decoder application/{kind}" for kind in ("json", "x-msgpack", "x-python-serialize", "x-yaml")),
    *(f"decoder application/x-{kind}" for kind in ("bz2", "gzip", "lzma")),
)
"""What `_celery` finds where Celery has just been imported, and nothing been done with it."""

_lock = threading.Lock()
_at_exit: list[str] = []


def take() -> Snapshot:
    """Return what this process has now."""
    with _lock:  # the probe of another thread has files open
        gc.collect()
        return {name: sorted(aspect()) for name, aspect in _ASPECTS.items()}


def changes(before: Snapshot, after: Snapshot) -> Snapshot:
    """Return what was added, as ``+ thing``, and what has gone, as ``- thing``, of the aspects that changed."""
    found = {}
    for aspect in after:
        old, new = Counter(before[aspect]), Counter(after[aspect])
        added, gone = sorted((new - old).elements()), sorted((old - new).elements())
        if added or gone:
            found[aspect] = [f"+ {thing}" for thing in added] + [f"- {thing}" for thing in gone]
    return found


def _name(thing: object) -> str:
    if isinstance(thing, signal.Handlers | None):
        return str(thing)
    named = getattr(thing, "__func__", thing)
    return f"{getattr(named, '__module__', '')}.{getattr(named, '__qualname__', type(thing).__qualname__)}"


def _threads() -> Iterator[str]:
    yield from (re.sub(r"\d+", "N", thread.name) for thread in threading.enumerate())


def _connections() -> Iterator[str]:
    servers = {int(port): name for name, port in (one.split("=") for one in os.environ[PORTS].split(","))}
    sockets = psutil.Process().net_connections("inet")
    accepted = {one.laddr.port for one in sockets if one.status == psutil.CONN_LISTEN}
    for one in sockets:
        if one.fd == -1 or one.laddr.port in accepted:
            continue  # TIME_WAIT belongs to the kernel, and the requests to the host
        yield servers.get(one.raddr.port, f"port {one.raddr.port}") if one.raddr else "no peer"


def _files() -> Iterator[str]:
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except FileNotFoundError:
            continue  # that by which the folder is read
        if not target.startswith("socket:"):
            yield re.sub(r"\d+", "N", target)


def _environment() -> Iterator[str]:
    # Values may be secrets.
    yield from (f"{name} ({zlib.crc32(value.encode()):08x})" for name, value in os.environ.items())


def _signals() -> Iterator[str]:
    yield from (f"{number!s}: {_name(signal.getsignal(number))}" for number in signal.valid_signals())


def _logging() -> Iterator[str]:
    yield f"raises {logging.raiseExceptions}, disabled {logging.root.manager.disable}, {_name(logging.lastResort)}"
    yield f"{_name(logging.getLoggerClass())}, {_name(logging.getLogRecordFactory())}"
    yield from {f"{name.partition('.')[0]}: NullHandler" for name in _with_null_handler()}
    for name, logger in [("root", logging.root), *logging.root.manager.loggerDict.items()]:
        if not isinstance(logger, logging.Logger):
            continue
        for handler in logger.handlers:
            if not isinstance(handler, logging.NullHandler):
                yield f"{name}: {type(handler).__name__} at {handler.level}"
        yield from (f"{name}: filter {_name(one)}" for one in logger.filters)
        if logger.level:
            yield f"{name}: level {logger.level}"
        if not logger.propagate or logger.disabled:
            yield f"{name}: propagates {logger.propagate}, disabled {logger.disabled}"


def _with_null_handler() -> Iterator[str]:
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and any(isinstance(one, logging.NullHandler) for one in logger.handlers):
            yield name


def _celery() -> Iterator[str]:
    """Celery's and kombu's globals, without importing them: that itself may leave something."""
    if "celery" not in sys.modules or "kombu.pools" not in sys.modules:
        yield from _PRISTINE_CELERY
        return
    from celery import _state, signals
    from kombu import compression, pools, serialization

    yield f"default app {getattr(_state.default_app, 'main', None)}"
    yield f"current app {getattr(_state._tls.current_app, 'main', None)}"
    yield from (f"app {app.main}" for app in _state._get_active_apps())
    yield f"pool limit {pools.get_limit()}"
    yield from (f"pool of {kind}" for kind in ("connections", "producers") for _ in getattr(pools, kind))
    yield from (f"disabled {one}" for one in serialization.registry._disabled_content_types)
    yield from (f"decoder {one}" for one in (*serialization.registry._decoders, *compression._decoders))
    for name, one in vars(signals).items():
        if isinstance(one, signals.Signal):
            yield from (f"receiver of {name}" for _ in one.receivers or ())


def _warnings() -> Iterator[str]:
    yield from map(str, warnings.filters)
    yield f"shown by {_name(warnings.showwarning)}"


def _atexit() -> Iterator[str]:
    yield from _at_exit


def _children() -> Iterator[str]:
    yield from (type(child).__name__ for child in multiprocessing.active_children())
    yield from (child.name() for child in psutil.Process().children())


def _interpreter() -> Iterator[str]:
    hooks: tuple[Any, ...] = (sys.excepthook, sys.unraisablehook, threading.excepthook, sys.displayhook)
    yield from (f"hook {_name(hook)}" for hook in hooks)
    yield from (f"path {one}" for one in sys.path)
    yield f"recursion limit {sys.getrecursionlimit()}, switch interval {sys.getswitchinterval():.4f}"
    yield f"tracer {sys.gettrace()}, profiler {sys.getprofile()}"
    yield f"default timeout of sockets {socket.getdefaulttimeout()}"
    yield f"event loops by {type(asyncio.get_event_loop_policy()).__name__}"
    yield f"locale {locale.setlocale(locale.LC_ALL)}, folder {Path.cwd()}"
    yield f"garbage collector {gc.isenabled()} {gc.get_threshold()}, frozen {gc.get_freeze_count()}"


_ASPECTS: Final[dict[str, Callable[[], Iterator[str]]]] = {
    "threads": _threads,
    "connections": _connections,
    "files": _files,
    "environment": _environment,
    "signals": _signals,
    "logging": _logging,
    "celery": _celery,
    "warnings": _warnings,
    "atexit": _atexit,
    "children": _children,
    "interpreter": _interpreter,
}


def _watch_atexit() -> None:
    """List what is registered from now on: `atexit` itself only counts."""
    register, unregister = atexit.register, atexit.unregister

    def registered(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
        _at_exit.append(_name(function))
        return register(function, *args, **kwargs)

    def unregistered(function: Callable[..., Any]) -> None:
        _at_exit[:] = [name for name in _at_exit if name != _name(function)]
        unregister(function)

    atexit.register, atexit.unregister = registered, unregistered


_watch_atexit()
