"""Cache, broker, graph and a worker on the loopback address until Ctrl-C; none of them outlives the command."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import watchfiles

from api_client.errors import ConfigurationError
from api_client.transport.redis_py import connect
from refresher.dev.environment_files import COMMANDS, reserved_folder, write_environment
from refresher.dev.errors import DevError
from refresher.dev.imports import files_imported_anew, imported_files
from refresher.dev.sample import ABOUT, load_sample
from refresher.embedded import ArcadeDbServer, GuardedProcess, Interrupts, RedisServer, free_port
from refresher.embedded.neo4j_server import Neo4jWithApoc
from refresher.feed.run import opened_triggers
from refresher.feed.watches import watches
from refresher.ops.http import is_ok
from refresher.queries import registry
from refresher.query_modules import import_queries
from refresher.settings import WorkerSettings

START_SECONDS: Final = 60.0
PID_FILE: Final = "worker.pid"
"""File with the worker's process id, beside the environment's files, for killing just this worker."""
_HOST: Final = "127.0.0.1"
_STOP_SECONDS: Final = 3.0
_WATCH_MS: Final = 500
_CACHE: Final = {"maxmemory": "256mb", "maxmemory-policy": "volatile-lru"}  # this policy spares tags
_SETTINGS: Final = ("CACHE_", "STAMPEDE_", "NEO4J_", "REFRESHER_")
"""Prefixes of variables that readers and commands share with the worker."""


@dataclass(frozen=True, slots=True)
class DevOptions:
    """The options of `refresher dev`.

    Attributes:
        modules: the modules that register queries; empty for those of REFRESHER_QUERIES.
        sample: True to load sample data into the embedded graph.
        neo4j_uri: the URI of the user's graph; None for an embedded one.
        feed: True to start Neo4j with APOC, install the change feed's trigger, and let the worker consume.
    """

    modules: Sequence[str]
    sample: bool = False
    neo4j_uri: str | None = None
    feed: bool = False


def run_dev(options: DevOptions, say: Callable[[str], None]) -> None:
    """Run everything until Ctrl-C or SIGTERM, which raise KeyboardInterrupt once everything has ended.

    Raises:
        DevError: a module can't be imported, the worker does not start, or the directory is taken.
        EmbeddedServerError: a server did not start.
        ConfigurationError: a setting in the environment is wrong.
    """
    sys.dont_write_bytecode = True  # a file edited twice in a second would pass for the compiled one
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    modules = _checked_modules(options.modules or WorkerSettings.from_env().query_modules)
    environ["REFRESHER_QUERIES"] = ",".join(modules)
    environ.setdefault("CACHE_XFETCH_WORKERS", "2")
    environ.setdefault("CACHE_SHOW_FAILURES", "true")
    began = time.monotonic()
    with Interrupts.handled(signal.SIGINT, signal.SIGTERM) as interrupts, ExitStack() as stack:
        folder = stack.enter_context(reserved_folder())
        say("starting cache, broker, graph and worker …")
        environ["CACHE_REDIS_URL"] = stack.enter_context(RedisServer.start(extra_config=_CACHE)).url(0)
        environ["CACHE_BROKER_URL"] = stack.enter_context(RedisServer.start()).url(0)
        settings = _started_graph(options, environ, stack)
        worker = _Worker(environ, folder)
        stack.callback(worker.stop)
        try:
            if not worker.start():
                raise DevError("the worker ended; what it printed says why")
            # Only now, because the file means that the system is running.
            shared = {name: value for name, value in worker.environ.items() if name.startswith(_SETTINGS)}
            write_environment(folder, shared)
            watched = _folders_of(modules)
            for line in _introduction(options, watched, time.monotonic() - began):
                say(line)
            _restart_on_change(worker, modules, settings, _changes_in(watched, interrupts), say)
        finally:
            # Everything is being stopped from here on, and another Ctrl-C would only leave something behind.
            interrupts.ignore()


def _started_graph(options: DevOptions, environ: dict[str, str], stack: ExitStack) -> WorkerSettings:
    """Start the graph or use the user's; put its address into ``environ``, and return the settings."""
    if options.neo4j_uri:
        environ["NEO4J_URI"] = options.neo4j_uri
    else:
        graph = Neo4jWithApoc.start() if options.feed else ArcadeDbServer.start()
        stack.enter_context(graph)
        environ |= graph.environ
    settings = WorkerSettings.from_env(environ)
    if options.sample:
        load_sample(settings)
    if options.feed:
        environ["CACHE_FEED"] = "true"
        with opened_triggers(settings) as triggers:
            triggers.install(watches)
    return settings


def _checked_modules(modules: Sequence[str]) -> Sequence[str]:
    if not modules:
        raise DevError("name the module that uses @query: refresher dev my_queries")
    for module in modules:
        if module.endswith(".py") or not all(part.isidentifier() for part in module.split(".")):
            name = ".".join(part for part in module.removesuffix(".py").split("/") if part not in {"", "."})
            raise DevError(f"{module!r} is not a module's name: refresher dev {name}")
    try:
        import_queries(modules)
    except ConfigurationError as error:
        if isinstance(error.__cause__, ModuleNotFoundError) and error.__cause__.name in modules:
            raise DevError(f"there is no module {error.__cause__.name} in {Path.cwd()}") from error
        raise
    return modules


def _folders_of(modules: Sequence[str]) -> list[Path]:
    """Return the folders of the packages, and of modules outside of packages."""
    folders: set[Path] = set()
    for module in modules:
        top = sys.modules[module.partition(".")[0]]
        paths = getattr(top, "__path__", None) or [Path(str(top.__file__)).parent]
        folders.update(Path(path).resolve() for path in paths)
    return sorted(folders)


def _introduction(options: DevOptions, watched: Sequence[Path], seconds: float) -> Iterator[str]:
    yield f"ready after {seconds:.1f} s"
    yield f"  queries: {', '.join(one.name for one in registry) or 'none yet: none of the modules uses @query'}"
    graph = options.neo4j_uri or f"an embedded {'Neo4j with the change feed' if options.feed else 'ArcadeDB'}"
    yield f"  graph: {graph}{f'; sample data: {ABOUT}' if options.sample else ''}"
    yield "  in another terminal, in this directory, set the environment of readers and commands:"
    for shell, command in COMMANDS:
        yield f"    {shell:<15}{command}"
    yield f"  the worker restarts when a file that it imports changes in {', '.join(map(str, watched))}"
    yield "  Ctrl-C stops everything, and removes its data"


class _Worker:
    """The successive worker processes, which print to this terminal.

    Args:
        environ: their whole environment.
        folder: a folder that the guardian removes if this process is killed.
    """

    def __init__(self, environ: dict[str, str], folder: Path) -> None:
        self._port = free_port()
        health = {"CACHE_HEALTH_PORT": str(self._port), "CACHE_HEALTH_ADDRESS": _HOST}
        # A killed pool's temporary files are removed with the folder.
        self.environ: dict[str, str] = {**environ, **health, "TMPDIR": str(folder)}
        self._folder = folder
        self._process: GuardedProcess | None = None

    def start(self) -> bool:
        """Start a worker, and wait until it is ready; return False if it has ended instead.

        Raises:
            DevError: neither happened within a minute.
        """
        argv = [sys.executable, "-m", "celery", "--quiet", "-A", "refresher", "worker", "-l", "INFO"]
        self._process = GuardedProcess.start(
            argv, log_file=None, env=self.environ, remove_when_orphaned=self._folder, grace_seconds=_STOP_SECONDS
        )
        (self._folder / PID_FILE).write_text(f"{self._process.pid}\n", encoding="utf-8")
        is_ready = self._process.wait_until(lambda: is_ok(_HOST, self._port, "/ready"), START_SECONDS)
        if not is_ready and not self.has_ended:
            raise DevError(f"the worker was not ready within {START_SECONDS:g} s")
        return is_ready

    @property
    def has_ended(self) -> bool:
        """True once the worker's process is gone."""
        return self._process is None or self._process.poll() is not None

    def stop(self) -> None:
        """End the worker, gracefully if it ends within some seconds."""
        if self._process is not None:
            self._process.terminate(_STOP_SECONDS)


def _changes_in(folders: Sequence[Path], interrupts: Interrupts) -> Iterator[set[Path]]:
    """Yield the Python files that have changed, if any, twice a second."""
    only_python = watchfiles.PythonFilter()
    for changes in watchfiles.watch(*folders, watch_filter=only_python, yield_on_timeout=True, rust_timeout=_WATCH_MS):
        interrupts.check()
        yield {Path(path) for _, path in changes}


def _restart_on_change(
    worker: _Worker, modules: Sequence[str], settings: WorkerSettings, changes: Iterator[set[Path]],
    say: Callable[[str], None],
) -> None:  # fmt: skip
    has_ended = False
    known: Collection[Path] | None = imported_files()
    for changed in changes:
        if concerned := changed if known is None else changed.intersection(known):
            files = ", ".join(sorted(path.name for path in concerned))
            say(f"{files} changed: emptying the cache, and restarting the worker …")
            worker.stop()
            # The cached values were loaded by the old code.
            with connect(settings.redis_url, timeout_seconds=_STOP_SECONDS) as cache:
                cache.flushdb()
            has_ended = False
            known = files_imported_anew(modules, worker.environ)
            if worker.start():
                say("ready")
        if worker.has_ended and not has_ended:
            has_ended = True
            say("the worker has ended; it is started again when a file changes")
