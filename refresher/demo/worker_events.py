"""Activity of the workers, from Celery's events, as Flower gets it."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kombu.exceptions import OperationalError

from api_client.config.broker import miss_queue, refresh_queue
from api_client.trigger.broker import queue_length
from api_client.trigger.private_app import PrivateApp
from refresher.demo.errors import DemoError
from refresher.flow.outcome import OutcomeKind

log: Final = logging.getLogger(__name__)

_READY_SECONDS: Final = 10.0
_CONNECTION_SECONDS: Final = 2.0
_SOCKET_SECONDS: Final = 5.0
_DELTAS_KEPT: Final = 64
_LOADED: Final = frozenset(
    {
        OutcomeKind.COMMITTED,
        OutcomeKind.COMMITTED_AS_STALE,
        OutcomeKind.REJECTED,
        OutcomeKind.RETRY,
        OutcomeKind.FAILED,
    }
)
_OUTCOME: Final = re.compile(
    rf"\b({'|'.join(sorted(OutcomeKind, key=len, reverse=True))})(?: \(([a-z_]+)\))? [\w.?-]+"
    r"(?: [0-9a-f]+)?(?: token=\d+ δ=([0-9.]+)s run=([0-9.]+)s)?"
)


@dataclass(frozen=True, slots=True)
class SeenOutcome:
    """One outcome, parsed from its text; durations in seconds, 0 where it has none."""

    kind: OutcomeKind
    why: str
    delta_seconds: float
    run_seconds: float


def parse_outcomes(text: str) -> Iterator[SeenOutcome]:
    """Yield the outcomes in a task's result or exception, as events show it: several are separated by ``;``.

    Other text is skipped. The text is `Outcome.__str__`'s; a test compares the two.
    """
    for part in text.split(";"):
        if match := _OUTCOME.search(part):
            kind, why, delta, run = match.groups()
            yield SeenOutcome(OutcomeKind(kind), why or "", float(delta or 0), float(run or 0))


@dataclass(slots=True)
class WorkerCounts:
    """Counts from the workers' events.

    ``running`` are tasks begun and not ended; ``online_at`` and ``first_commit_at`` are by the worker's name
    (monotonic, s), ``deltas`` the last commits' δ in seconds.
    """

    outcomes: Counter[OutcomeKind] = field(default_factory=Counter)
    rejected_for: Counter[str] = field(default_factory=Counter)
    crashed: int = 0
    running: set[str] = field(default_factory=set)
    online_at: dict[str, float] = field(default_factory=dict)
    first_commit_at: dict[str, float] = field(default_factory=dict)
    deltas: deque[float] = field(default_factory=lambda: deque(maxlen=_DELTAS_KEPT))

    @property
    def committed(self) -> int:
        """Values stored, also those that an invalidation had made stale meanwhile."""
        return self.outcomes[OutcomeKind.COMMITTED] + self.outcomes[OutcomeKind.COMMITTED_AS_STALE]

    @property
    def loads(self) -> int:
        """Queries that the graph has had."""
        return sum(self.outcomes[kind] for kind in _LOADED)

    @property
    def given_up(self) -> int:
        """Abandoned refreshes, and tasks that ended in an error."""
        return self.outcomes[OutcomeKind.FAILED] + self.crashed

    @property
    def delta_seconds(self) -> float:
        """The mean δ of the last commits; 0 before the first."""
        return sum(self.deltas) / len(self.deltas) if self.deltas else 0.0

    def take(self, event: Mapping[str, Any], now: float) -> None:
        """Count one event, at ``now`` (monotonic, s)."""
        kind, task, worker = event.get("type", ""), str(event.get("uuid", "")), str(event.get("hostname", ""))
        if kind == "worker-online":
            self.online_at.setdefault(worker, now)
        elif kind == "task-started":
            self.running.add(task)
        elif kind in {"task-succeeded", "task-retried", "task-failed"}:
            self.running.discard(task)
            outcomes = list(parse_outcomes(str(event.get("result") or event.get("exception") or "")))
            self.crashed += kind == "task-failed" and not outcomes
            for outcome in outcomes:
                self._count(outcome, worker, now)

    def _count(self, outcome: SeenOutcome, worker: str, now: float) -> None:
        self.outcomes[outcome.kind] += 1
        if outcome.kind is OutcomeKind.REJECTED:
            self.rejected_for[outcome.why] += 1
        elif outcome.kind in {OutcomeKind.COMMITTED, OutcomeKind.COMMITTED_AS_STALE}:
            self.deltas.append(outcome.delta_seconds)
            self.first_commit_at.setdefault(worker, now)


class WorkerEvents:
    """Receives the events on a thread of its own, and queries the lengths of the queues.

    Args:
        broker_url: where the workers publish their events.
        namespace: of the queues; and the prefix of all keys that the receiver makes in the broker.
    """

    def __init__(self, broker_url: str, namespace: str) -> None:
        self.counts: WorkerCounts = WorkerCounts()
        self.lock: threading.Lock = threading.Lock()
        self._queues = (miss_queue(namespace), refresh_queue(namespace))
        settings = {
            "broker_url": broker_url,
            "event_queue_prefix": f"{namespace}.events",
            "broker_connection_timeout": _CONNECTION_SECONDS,
            # Longer than the transport's own blocking reads, which would end in an error otherwise.
            "broker_transport_options": {
                "socket_timeout": _SOCKET_SECONDS,
                "socket_connect_timeout": _CONNECTION_SECONDS,
                "socket_keepalive": True,
            },
        }
        self._app = PrivateApp.configured("refresher-demo", settings)
        self._connection = self._app.connection_for_read()
        self._queue_connection = self._app.connection_for_read()
        self._listens = threading.Event()
        self._receiver = self._app.events.Receiver(self._connection, handlers={"*": self._take})
        self._receiver.on_consume_ready = self._on_ready
        self._thread = threading.Thread(target=self._run, name="worker-events", daemon=True)

    def start(self) -> None:
        """Subscribe, and return once events are received.

        Raises:
            DemoError: the broker could not be used.
        """
        self._thread.start()
        if not self._listens.wait(_READY_SECONDS):
            raise DemoError("could not subscribe to the workers' events at the broker")

    def waiting(self) -> int:
        """Return how many refreshes are queued.

        Raises:
            DemoError: the broker can't be used.
        """
        try:
            return sum(queue_length(self._queue_connection, queue) for queue in self._queues)
        except (
            *self._queue_connection.connection_errors,
            *self._queue_connection.channel_errors,
            OperationalError,
        ) as error:
            raise DemoError(f"the broker can't be used any more: {type(error).__name__}") from error

    def forget_running(self) -> None:
        """Forget running tasks: their worker was killed, and sends no more events."""
        with self.lock:
            self.counts.running.clear()

    def close(self) -> None:
        """End the thread and the connections."""
        self._receiver.should_stop = True
        if self._thread.is_alive():  # it may never have begun
            self._thread.join(_CONNECTION_SECONDS)
        self._connection.release()
        self._queue_connection.release()
        self._app.close()

    def _take(self, event: Mapping[str, Any]) -> None:
        with self.lock:
            self.counts.take(event, time.monotonic())

    def _on_ready(self, *_: object, **__: object) -> None:
        self._listens.set()

    def _run(self) -> None:
        try:
            for _ in self._receiver.consume(limit=None, wakeup=False):
                pass
        except Exception:  # whatever the transport raises: counts stand still, the demo goes on
            # Closed while the thread was only beginning (Ctrl-C within start()), it finds its connection gone.
            if not self._receiver.should_stop:
                log.exception("the workers' events can't be received any more")
