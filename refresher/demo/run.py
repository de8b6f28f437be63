"""The demo from begin to end: servers, graph, worker, Flower, readers, an accident, and what came of it all."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.padding import Padding
from rich.text import Text

from api_client import CacheClient, ReaderSettings
from refresher.demo.opening import Opening
from refresher.demo.options import DemoOptions
from refresher.demo.places import Places, places
from refresher.demo.popularity import Popularity
from refresher.demo.processes import Flower, Workers
from refresher.demo.summary import Result, paragraphs
from refresher.demo.traffic import Traffic
from refresher.demo.worker_events import WorkerEvents

if TYPE_CHECKING:
    from rich.console import Console

    from refresher.demo.social_graph import SocialGraph

EXIT_FINE: Final = 0
EXIT_WRONG: Final = 1
EXIT_INTERRUPTED: Final = 130
_SUMMARY_COLUMNS: Final = 100


def run_demo(options: DemoOptions, console: Console) -> int:
    """Run the demo and return its exit code: 0, 1 when a read failed or a promise was broken, 130 after Ctrl-C.

    Raises:
        DemoError, EmbeddedServerError, CacheError: it could not run.
    """
    logs = Path(tempfile.mkdtemp(prefix="refresher-demo-"))
    keep_logs = True
    try:
        result = _run(options, Opening(console), console, logs)
        _tell(result, console)
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


def _run(options: DemoOptions, opening: Opening, console: Console, logs: Path) -> Result:
    opening.say("refresher demo: a background-refresh cache at work, with all that it takes")
    graph = opening.graph(options)
    with _cleaning_up_undisturbed(), ExitStack() as stack:
        with opening.step("servers started:") as more:
            found = stack.enter_context(places(options))
            more.append(f"{found.graph_title}, Redis {found.redis_title}")
        stage = _Stage(options, graph, found, opening, console)
        try:
            return stage.play(stack, logs)
        finally:
            # All is being stopped from here on; another Ctrl-C would only leave something behind.
            signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _cleaning_up_undisturbed() -> Iterator[None]:
    """Give Ctrl-C back its meaning in the end."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@dataclass(slots=True)
class _Stage:
    options: DemoOptions
    graph: SocialGraph
    found: Places
    opening: Opening
    console: Console

    def play(self, stack: ExitStack, logs: Path) -> Result:
        """Start what is still missing, let the readers read, and return what came of it."""
        environ, namespace = self.found.environ, self.found.settings.namespace
        events = WorkerEvents(self.found.settings.broker_url, namespace)
        stack.callback(events.close)
        events.start()
        workers = Workers(environ, events, namespace, logs)
        stack.callback(workers.close)
        workers.start()  # it comes up while the graph is loaded
        flower = Flower.start(environ, logs)
        if flower is not None:
            stack.callback(flower.close)
        self.opening.load(self.graph, self.found)
        with self.opening.step("worker and Flower ready" if flower else "worker ready"):
            workers.wait_until_ready()
            if flower is not None:
                flower.wait_until_ready()
        contact = "not installed: pip install 'refresher[flower]'" if flower is None else flower.contact
        self.opening.say(f"  Flower: {contact}")
        client = stack.enter_context(CacheClient(ReaderSettings.from_env(environ)))
        traffic = Traffic(self.options, self.found, self._popularity(), workers, events, client)
        stack.callback(traffic.close)
        return traffic.run(self.console)

    def _popularity(self) -> Popularity:
        return Popularity(self.graph, self.options.seed)


def _tell(result: Result, console: Console) -> None:
    for paragraph in paragraphs(result):
        text = Text(paragraph)
        if console.is_terminal:
            console.print(Padding(text, (1, 0, 0, 0)), width=min(console.width, _SUMMARY_COLUMNS))
        else:
            console.print(text, soft_wrap=True)
    for failure in result.failures[:5]:
        sys.stderr.write(f"error: a read failed: {failure}\n")
