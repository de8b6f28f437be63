"""Traffic: readers read, the writer writes, a worker is killed; everything is shown and checked."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from api_client import CacheClient
from refresher.checker.oracle import Checker
from refresher.checker.writer import WatchedQuery, Writer, check_repairs
from refresher.demo.chaos import Chaos, Stage
from refresher.demo.display import FRAMES_PER_SECOND, Display, display_on, take_snapshot
from refresher.demo.options import READS_PER_SECOND, DemoOptions
from refresher.demo.reader_thread import CHECKED_QUERY
from refresher.demo.readers import Readers
from refresher.demo.state import RunState
from refresher.demo.summary import Result

if TYPE_CHECKING:
    from rich.console import Console

    from refresher.demo.environment import Environment
    from refresher.demo.graph.popularity import Popularity
    from refresher.demo.processes import Workers
    from refresher.demo.worker_events import WorkerEvents

_WATCHED: Final = WatchedQuery(
    CHECKED_QUERY, "name",
    "MATCH (p:Person {name: $name}) SET p.version = p.version + 1 RETURN p.version AS version",
)  # fmt: skip
# Only some of the hottest persons are changed, so that each is invalidated several times in a run.
_NAMES: Final = 16
_WRITER_PAUSE_SECONDS: Final = 0.8
_TICK_SECONDS: Final = 0.1
_REPAIR_SECONDS: Final = 15.0
_LAST_READS_SECONDS: Final = 25.0
_LAST_READS_AFTER_CTRL_C_SECONDS: Final = 2.0


class Traffic:
    """One run of readers and writer over running servers."""

    def __init__(
        self,
        options: DemoOptions,
        environment: Environment,
        popularity: Popularity,
        workers: Workers,
        events: WorkerEvents,
        client: CacheClient,
    ) -> None:
        self._options, self._environment, self._events, self._client = options, environment, events, client
        self._state = RunState(Checker(CHECKED_QUERY))
        keys = popularity.keys
        self._readers = Readers(
            environment.environ, keys, popularity.weights.tolist(), processes=options.readers,
            reads_per_second=READS_PER_SECOND, seed=options.seed,
            on_report=lambda report: self._state.add(report, time.monotonic()),
        )  # fmt: skip
        names = [str(params["name"]) for query, params in keys if query == CHECKED_QUERY][:_NAMES]
        self._writer = Writer(
            environment.driver, environment.database, client, self._state.checker, _WATCHED, names,
            pause_seconds=_WRITER_PAUSE_SECONDS, seed=options.seed,
        )  # fmt: skip
        self._workers = workers
        self._chaos: Chaos | None = None
        self._began_at = 0.0

    def run(self, console: Console) -> Result:
        """Run for ``options.seconds``, or with ``keep`` until Ctrl-C; then check, and return the result.

        Raises:
            DemoError, WriterFailed: a process of the demo ended, the second worker did not start, or the writer failed.
        """
        self._readers.start()
        self._writer.start()
        self._began_at = time.monotonic()
        if self._options.chaos:
            self._chaos = Chaos(
                self._workers, self._readers, self._writer, self._events, self._state,
                kill_at=self._began_at + self._options.seconds / 2,
            )  # fmt: skip
        interrupted = False
        with display_on(console, seconds=None if self._options.keep else self._options.seconds) as shown:
            try:
                self._watch(shown)
            except KeyboardInterrupt:
                if not self._options.keep:
                    raise
                interrupted = True
        return self._end(interrupted=interrupted)

    def close(self) -> None:
        """End writer and readers unconditionally."""
        self._writer.stop()
        self._readers.close()

    def _watch(self, shown: Display) -> None:
        next_frame_at = 0.0
        while not self._is_over():
            self._readers.collect(_TICK_SECONDS)
            self._writer.check()
            now = time.monotonic()
            if self._chaos is not None:
                self._chaos.step(now)
            if now >= next_frame_at:
                next_frame_at = now + 1 / FRAMES_PER_SECOND
                shown.show(take_snapshot(self._state, self._events, self._stage, self._began_at))

    @property
    def _stage(self) -> Stage:
        return Stage.AHEAD if self._chaos is None else self._chaos.stage

    def _is_over(self) -> bool:
        if self._options.keep or time.monotonic() < self._began_at + self._options.seconds:
            return False
        return self._chaos is None or self._chaos.is_over

    def _end(self, *, interrupted: bool) -> Result:
        self._writer.stop()
        self._readers.stop(_LAST_READS_AFTER_CTRL_C_SECONDS if interrupted else _LAST_READS_SECONDS)
        seconds = time.monotonic() - self._began_at
        has_worker = self._stage not in {Stage.WITHOUT_WORKER, Stage.STARTING}
        checker, counts = self._state.checker, self._events.counts
        slowest_repair_seconds = 0.0
        if has_worker:
            slowest_repair_seconds = check_repairs(checker, self._client, _WATCHED, timeout_seconds=_REPAIR_SECONDS)
        hard = sum(done.hard for done in checker.invalidations)
        return Result(
            seconds=seconds,
            processes=self._options.readers,
            tally=self._state.tally,
            committed=counts.committed,
            rejected_for=dict(counts.rejected_for),
            given_up=counts.given_up,
            outage=None if self._chaos is None else self._chaos.outage_report(self._began_at),
            soft_invalidations=len(checker.invalidations) - hard,
            hard_invalidations=hard,
            slowest_repair_seconds=slowest_repair_seconds,
            broken=checker.broken,
            failures=self._state.failures,
            where=self._environment.graph_title,
        )
