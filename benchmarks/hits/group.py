"""Interface of a group of measurements: a name, a title, and a run that gives a result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from benchmarks.apparatus.entries import PayloadKind, ValueOf, value_of
from benchmarks.apparatus.processes import refresh_worker
from benchmarks.apparatus.servers import Servers
from benchmarks.hits import queries
from benchmarks.hits.command import BenchOptions
from benchmarks.reports.results import Result
from refresher.embedded import ArcadeDbServer


@contextmanager
def celery_worker(servers: Servers, payload: PayloadKind) -> Iterator[None]:
    """Run a worker of `stampede.queries` with default settings, but for the addresses, and with a graph of its own.

    Raises:
        EmbeddedServerError: the graph did not start.
        BenchError: the worker did not.
    """
    with ArcadeDbServer.start() as graph:
        more = {queries.CONTROL_URL: servers.control_url, queries.PAYLOAD: payload.value}
        with refresh_worker(servers, graph, queries.__name__, more):
            yield


@dataclass(slots=True)
class Setting:
    """Servers and options of a run.

    Attributes:
        place: the servers.
        options: of the run.
        stack: what is opened here stays for the groups after this one.
    """

    servers: Servers
    options: BenchOptions
    stack: ExitStack
    _has_worker: bool = False

    def start_worker(self) -> None:
        """Start a real Celery worker, unless one runs already.

        Raises:
            EmbeddedServerError, BenchError: it did not start.
        """
        if not self._has_worker:
            self.stack.enter_context(celery_worker(self.servers, self.options.payload))
            self._has_worker = True

    @property
    def value_of(self) -> ValueOf:
        return value_of(self.options.payload)


@dataclass(frozen=True, slots=True)
class Group(ABC):
    """One group of measurements; ``name`` is what ``--only`` takes, ``is_long`` is for ``--full``."""

    name: str
    title: str
    is_long: bool = field(default=False, kw_only=True)

    @abstractmethod
    def run(self, setting: Setting) -> Result:
        """Measure."""
