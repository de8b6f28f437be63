"""Traffic: readers read, the writer writes, a worker is killed, and everything is shown and checked."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from api_client import CacheClient
from api_client.trigger.broker import CeleryBroker, fault_text
from refresher.checker.oracle import Checker
from refresher.checker.writer import WatchedQuery, Writer, check_repairs
from refresher.demo.counts import WINDOW_SECONDS, RunState
from refresher.demo.display import FRAMES_PER_SECOND, Show, Snapshot, display_on
from refresher.demo.errors import DemoError
from refresher.demo.options import READS_PER_SECOND, DemoOptions
from refresher.demo.outage import Outage, Stage
from refresher.demo.readers import CHECKED_QUERY, Key, Readers
from refresher.demo.staleness import Comparison, Staleness
from refresher.demo.summary import Result

if TYPE_CHECKING:
    from rich.console import Console

    from refresher.demo.environment import Environment
    from refresher.demo.workers import WorkerCounts, Workers

_WATCHED: Final = WatchedQuery(
    CHECKED_QUERY, "name",
    "MATCH (p:Person {name: $name}) SET p.version = p.version + 1 RETURN p.version AS version",
)  # fmt: skip
# Only a few of the hottest persons are changed, so that each is invalidated several times in a run.
_NAMES: Final = 16
_WRITER_PAUSE_SECONDS: Final = 0.8
_TICK_SECONDS: Final = 0.1
_REPAIR_SECONDS: Final = 15.0
_LAST_READS_SECONDS: Final = 25.0
_LAST_READS_AFTER_CTRL_C_SECONDS: Final = 2.0


class Traffic:
    """One run of readers and writer over running servers and workers.

    Args:
        client: invalidates, and checks the values at the end.
        keys, weights: the keys to read, and their frequencies.
    """

    def __init__(
        self,
        options: DemoOptions,
        environment: Environment,
        workers: Workers,
        client: CacheClient,
        keys: Sequence[Key],
        weights: Sequence[float],
    ) -> None:
        self._options, self._environment, self._workers, self._client = options, environment, workers, client
        self._state = RunState(Checker(CHECKED_QUERY))
        self._readers = Readers(
            environment.environ, keys, weights, processes=options.readers, reads_per_second=READS_PER_SECOND,
            seed=options.seed, on_report=lambda report: self._state.add(report, time.monotonic()),
        )  # fmt: skip
        names = [str(params["name"]) for query, params in keys if query == CHECKED_QUERY]
        self._writer = Writer(
            environment.driver, environment.database, client, self._state.checker, _WATCHED, names[:_NAMES],
            pause_seconds=_WRITER_PAUSE_SECONDS, seed=options.seed,
        )  # fmt: skip
        others = names[_NAMES : 2 * _NAMES]
        self._staleness = (
            Staleness(environment.driver, environment.database, client, others, seed=options.seed)
            if options.feed
            else None
        )
        self._broker = CeleryBroker(environment.settings.broker_url, environment.settings.namespace)
        self._outage: Outage | None = None
        self._began_at = 0.0
        self._worker_counts: deque[tuple[float, WorkerCounts]] = deque()
        self._lead_seconds = 0.0

    def run(self, console: Console, check_interrupts: Callable[[], None]) -> Result:
        """Run for ``options.seconds``, or with ``keep`` until Ctrl-C; then check, and return the result.

        ``check_interrupts`` raises KeyboardInterrupt after Ctrl-C.

        Raises:
            DemoError, WriterFailed: a process of the demo ended, the second worker did not start, or the writer failed.
        """
        self._readers.start()
        self._writer.start()
        if self._staleness is not None:
            self._staleness.start()
        self._began_at = time.monotonic()
        if self._options.chaos:
            self._outage = Outage(
                self._workers, self._readers, self._writer, self._state, waiting=self._waiting,
                kill_at=self._began_at + self._options.seconds / 2,
            )  # fmt: skip
        interrupted = False
        with display_on(console, seconds=None if self._options.keep else self._options.seconds) as show:
            try:
                self._watch(show, check_interrupts)
            except KeyboardInterrupt:
                if not self._options.keep:
                    raise
                interrupted = True
        return self._end(interrupted=interrupted)

    def close(self) -> None:
        """End writer and readers unconditionally."""
        self._stop_writing()
        self._readers.close()
        self._broker.close()

    def _watch(self, show: Show, check_interrupts: Callable[[], None]) -> None:
        next_frame_at = 0.0
        while not self._is_over():
            check_interrupts()
            self._readers.collect(_TICK_SECONDS)
            self._writer.check()
            now = time.monotonic()
            if self._outage is not None:
                self._outage.step(now)
            if now >= next_frame_at:
                next_frame_at = now + 1 / FRAMES_PER_SECOND
                show(self._snapshot(now))

    def _snapshot(self, now: float) -> Snapshot:
        state, counts, earlier = self._state, self._workers.counts, self._worker_counts
        earlier.append((now, counts))
        while earlier[0][0] < now - WINDOW_SECONDS:
            earlier.popleft()
        before = earlier[0][1]
        if committed := counts.committed - before.committed:
            self._lead_seconds = (counts.lead_seconds - before.lead_seconds) / committed
        return Snapshot(
            elapsed_seconds=now - self._began_at,
            stage=self._stage,
            tally=state.tally,
            recent=state.recent(now),
            queued=self._waiting(),
            worker=counts,
            recent_loads=counts.loads - before.loads,
            lead_seconds=self._lead_seconds,
            broken=len(state.checker.broken),
            comparison=self._comparison,
            history=[(at - self._began_at, sentence) for at, sentence in state.history],
        )

    @property
    def _comparison(self) -> Comparison | None:
        return None if self._staleness is None else self._staleness.comparison

    def _waiting(self) -> int:
        try:
            return self._broker.waiting() + self._broker.waiting(has_waiter=True)
        except Exception as error:  # any error of kombu's transports
            raise DemoError(f"the broker can't be used any more: {fault_text(error)}") from error

    @property
    def _stage(self) -> Stage:
        return Stage.AHEAD if self._outage is None else self._outage.stage

    def _is_over(self) -> bool:
        if self._options.keep or time.monotonic() < self._began_at + self._options.seconds:
            return False
        return self._outage is None or self._stage is Stage.OVER

    def _stop_writing(self) -> None:
        self._writer.stop()
        if self._staleness is not None:
            self._staleness.stop()

    def _end(self, *, interrupted: bool) -> Result:
        self._stop_writing()
        self._readers.stop(_LAST_READS_AFTER_CTRL_C_SECONDS if interrupted else _LAST_READS_SECONDS)
        seconds = time.monotonic() - self._began_at
        checker = self._state.checker
        slowest_repair_seconds = 0.0
        if self._stage.has_worker:
            slowest_repair_seconds = check_repairs(checker, self._client, _WATCHED, timeout_seconds=_REPAIR_SECONDS)
        hard = sum(done.hard for done in checker.invalidations)
        return Result(
            seconds=seconds,
            processes=self._options.readers,
            tally=self._state.tally,
            worker=self._workers.counts,
            outage=None if self._outage is None else self._outage.report(self._began_at),
            soft_invalidations=len(checker.invalidations) - hard,
            hard_invalidations=hard,
            slowest_repair_seconds=slowest_repair_seconds,
            broken=checker.broken,
            failures=self._state.failures,
            comparison=self._comparison,
            where=self._environment.graph_title,
        )
