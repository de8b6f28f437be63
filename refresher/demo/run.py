"""The demo from start to end: setup of servers, graph, worker and Flower, then traffic and summary."""

from __future__ import annotations

import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.padding import Padding
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from api_client import CacheClient, ReaderSettings
from refresher.demo.environment import Environment, started_environment
from refresher.demo.graph.popularity import hot_keys
from refresher.demo.graph.social_graph import SocialGraph, load
from refresher.demo.options import DemoOptions
from refresher.demo.queries import BY_TTL
from refresher.demo.staleness import warm_up
from refresher.demo.summary import Result, paragraphs
from refresher.demo.traffic import Traffic
from refresher.demo.workers import Flower, Workers
from refresher.embedded import Interrupts
from refresher.embedded.directories import new_directory
from refresher.feed.triggers import Triggers
from refresher.feed.watches import watches

if TYPE_CHECKING:
    from rich.console import Console

EXIT_FINE: Final = 0
EXIT_WRONG: Final = 1
EXIT_INTERRUPTED: Final = 130
MAX_FAILURES_SHOWN: Final = 5
_SUMMARY_COLUMNS: Final = 100


def run_demo(options: DemoOptions, console: Console) -> int:
    """Run the demo and return its exit code: 0, 1 when a read failed or a guarantee was broken, 130 after Ctrl-C.

    Raises:
        DemoError, EmbeddedServerError, CacheError: the demo could not run.
    """
    logs = new_directory("refresher-demo-")
    keep_logs = False
    try:
        logs.mkdir(mode=0o700)
        keep_logs = True
        with Interrupts.handled(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as interrupts:
            result = _Demo(options, console, interrupts).run(logs)
        _print_result(result, console)
        keep_logs = not result.is_fine
        return EXIT_FINE if result.is_fine else EXIT_WRONG
    except KeyboardInterrupt:
        console.print("interrupted; everything was stopped")
        keep_logs = False
        return EXIT_INTERRUPTED
    finally:
        if keep_logs and any(logs.iterdir()):
            sys.stderr.write(f"the logs of the demo's processes are in {logs}\n")
        else:
            shutil.rmtree(logs, ignore_errors=True)


class _Demo:
    def __init__(self, options: DemoOptions, console: Console, interrupts: Interrupts) -> None:
        self._options, self._console, self._interrupts = options, console, interrupts

    def run(self, logs: Path) -> Result:
        """Set up everything, let the readers read, and return the result."""
        self._say("refresher demo: a background-refresh cache at work, with everything that it needs")
        graph = self._graph()
        with ExitStack() as stack:
            with self._step("servers started:") as details:
                environment = stack.enter_context(started_environment(self._options))
                details.append(f"{environment.graph_title}, {environment.redis_title}")
            try:
                return self._traffic(environment, graph, stack, logs).run(self._console, self._interrupts.check)
            finally:
                # Everything is being stopped from here on, and another Ctrl-C would only leave something behind.
                self._interrupts.ignore()

    def _traffic(self, environment: Environment, graph: SocialGraph, stack: ExitStack, logs: Path) -> Traffic:
        """Start worker and Flower, load the graph, and return the traffic, ready to run."""
        environ = environment.environ
        workers = Workers(environ, environment.settings.namespace, logs)
        stack.callback(workers.close)
        if self._options.feed:
            self._load(graph, environment)  # before the trigger, which would note all of it
            with self._step("trigger of the change feed installed"):
                Triggers(environment.driver, environment.database).install(watches)
            with self._step("Neo4j warmed up"):
                warm_up(environment.driver, environment.database, graph.names)
        workers.start()  # it starts up while the graph is loaded
        flower = Flower.start(environ, logs)
        if flower is not None:
            stack.callback(flower.close)
        if not self._options.feed:
            self._load(graph, environment)
        with self._step("worker and Flower ready" if flower else "worker ready"):
            workers.wait_until_ready()
            if flower is not None:
                flower.wait_until_ready()
        contact = "not installed: pip install 'refresher[flower]'" if flower is None else flower.contact
        self._say(f"  Flower: {contact}")
        client = stack.enter_context(CacheClient(ReaderSettings.from_env(environ)))
        keys, weights = hot_keys(graph, self._options.seed)
        if self._options.feed:  # only cheap loads, to show staleness instead of a small machine's capacity
            chosen = [place for place, (query, _) in enumerate(keys) if query == BY_TTL]
            keys, weights = [keys[place] for place in chosen], [weights[place] for place in chosen]
        traffic = Traffic(self._options, environment, workers, client, keys, weights)
        stack.callback(traffic.close)
        return traffic

    def _graph(self) -> SocialGraph:
        with self._step("graph made:") as details:
            graph = SocialGraph.generated(self._options.persons, seed=self._options.seed)
            hub = graph.degrees.max()
            details.append(f"{graph.persons:,} persons, {graph.edges:,} KNOWS, the best known with {hub:,}")
        return graph

    def _load(self, graph: SocialGraph, environment: Environment) -> None:
        began, console = time.monotonic(), self._console
        columns = (TextColumn("  loading the graph"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
            task = bar.add_task("", total=graph.persons + graph.edges)

            load(environment.driver, environment.database, graph, lambda done: bar.update(task, completed=done))
        self._say(f"  graph loaded ({time.monotonic() - began:.1f} s)")

    @contextmanager
    def _step(self, what: str) -> Iterator[list[str]]:
        """Print ``what``, the details that the block appends, and its seconds."""
        began, details = time.monotonic(), list[str]()
        with self._console.status(f"{what} …") if self._console.is_terminal else nullcontext():
            yield details
        self._interrupts.check()
        self._say(f"  {' '.join([what, *details])} ({time.monotonic() - began:.1f} s)")

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def _print_result(result: Result, console: Console) -> None:
    for paragraph in paragraphs(result):
        text = Text(paragraph)
        if console.is_terminal:
            console.print(Padding(text, (1, 0, 0, 0)), width=min(console.width, _SUMMARY_COLUMNS))
        else:
            console.print(text, soft_wrap=True)
    for failure in result.failures[:MAX_FAILURES_SHOWN]:
        sys.stderr.write(f"error: a read failed: {failure}\n")
