"""Liveness and readiness of a worker, for a supervisor.

Live: the loop that consumes messages turns. Ready: it consumes them, cache and broker are writable, and the graph
replies. A worker that is not ready must not be restarted for it: that would bring back none of the three.

Each of the three is probed on request, on a thread of its own, at most every five seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from api_client.explain import duration
from api_client.trigger.broker import CeleryBroker
from refresher.ops.broker import broker_place, fault_text
from refresher.ops.checks import broker_memory_problem, cache_problem, graph_problem
from refresher.ops.probe import CachedProbe, ProbeTimeout
from refresher.settings import WorkerSettings

if TYPE_CHECKING:

    class _Step:
        """The used part of Celery's class, which has no types."""

        def __init__(self, parent: Any, **options: Any) -> None: ...
else:
    from celery.bootsteps import StartStopStep as _Step

BEAT_SECONDS: Final = 1.0


class Phase(StrEnum):
    """Phase of the main process."""

    CONNECTING = "connecting"
    CONSUMING = "consuming"
    STOPPING = "stopping"


class Heartbeat:
    """The last sign of life of the loop. Thread-safe: each write is of one value."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._beat_at = monotonic()
        self._can_beat = True
        self.phase: Phase = Phase.CONNECTING

    @property
    def silent_seconds(self) -> float:
        """Time since the last beat; 0 in a phase without beats."""
        if self.phase is Phase.STOPPING or not self._can_beat:
            return 0.0
        return self._monotonic() - self._beat_at

    def beat(self) -> None:
        """Record a beat."""
        self._beat_at = self._monotonic()

    def enter(self, phase: Phase, *, can_beat: bool) -> None:
        """Begin a phase. ``can_beat``: it has beats. STOPPING is final."""
        self.beat()
        if self.phase is not Phase.STOPPING:
            self.phase, self._can_beat = phase, can_beat


class HeartbeatStep(_Step):
    """A step of Celery's consumer that beats in its loop."""

    # The last to start before the loop: then the worker consumes.
    requires: ClassVar[tuple[str, ...]] = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._connecting(consumer)

    def start(self, consumer: Any) -> None:
        """Celery starts what needs the connection, and its loop after that."""
        # A green pool has no loop of Celery's.
        heartbeat_of(consumer.app).enter(Phase.CONSUMING, can_beat=consumer.hub is not None)

    def register_with_event_loop(self, consumer: Any, hub: Any) -> None:
        """Beat from now on, until the connection is lost: Celery cancels with it what was registered here."""
        hub.call_repeatedly(BEAT_SECONDS, heartbeat_of(consumer.app).beat)

    def stop(self, consumer: Any) -> None:
        """Celery has lost the connection, or ends."""
        self._connecting(consumer)

    def _connecting(self, consumer: Any) -> None:
        # Another consumer, an application's own, does not beat at its attempts.
        heartbeat_of(consumer.app).enter(Phase.CONNECTING, can_beat=hasattr(consumer, "beats_while_connecting"))


def heartbeat_of(app: Any) -> Heartbeat:
    """Return the heartbeat of a Celery app; an unused one where the app was not set up for refreshes."""
    heartbeat: Heartbeat = getattr(app, "refresher_loop_heartbeat", None) or Heartbeat()
    return heartbeat


TTL_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 2.5
MISSED_BEATS_SECONDS: Final = 5.0
"""A loop that is silent for longer is not ready: it may be held up for a moment only."""
MIN_STUCK_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a check, by part: None, or the fault."""

    checks: Mapping[str, str | None]

    @property
    def is_good(self) -> bool:
        """Whether nothing is wrong."""
        return not any(self.checks.values())

    def record(self) -> dict[str, Any]:
        """Return the verdict as JSON has it."""
        return {"ok": self.is_good, "checks": {name: fault or "ok" for name, fault in self.checks.items()}}


class Health:
    """A worker's health. Nothing is probed before the first request.

    Args:
        settings: where cache, broker and graph are.
        heartbeat: of the worker's loop.
    """

    def __init__(self, settings: WorkerSettings, heartbeat: Heartbeat) -> None:
        self._heartbeat = heartbeat
        self._stuck_seconds = stuck_seconds(settings)
        self._broker = CeleryBroker(settings.broker_url, settings.namespace)
        probes: dict[str, Callable[[], str | None]] = {
            "cache": partial(cache_problem, settings),
            "broker": partial(_broker_problem, settings, self._broker),
            "graph": partial(graph_problem, settings),
        }
        self._probes = {name: CachedProbe(probe, ttl_seconds=TTL_SECONDS) for name, probe in probes.items()}

    def live(self) -> Verdict:
        """Check whether the main process works; one that is not live may be restarted."""
        silent = self._heartbeat.silent_seconds
        stuck = f"has been stuck for {duration(silent)}, {self._heartbeat.phase.value}"
        return Verdict({"consumer": stuck if silent > self._stuck_seconds else None})

    def ready(self) -> Verdict:
        """Check whether a refresh triggered now would be done; takes 2.5 s at most."""
        for probe in self._probes.values():
            probe.start()
        checks: dict[str, str | None] = {"consumer": self._consumer_problem()}
        checks |= {name: _result(probe) for name, probe in self._probes.items()}
        return Verdict(checks)

    def close(self) -> None:
        """Close the connection to the broker."""
        self._broker.close()

    def _consumer_problem(self) -> str | None:
        if self._heartbeat.phase is not Phase.CONSUMING:
            return f"consumes no messages: {self._heartbeat.phase.value}"
        silent = self._heartbeat.silent_seconds
        return f"silent for {duration(silent)}" if silent > MISSED_BEATS_SECONDS else None


def stuck_seconds(settings: WorkerSettings) -> float:
    """Return how long a loop may be silent: as long as one message may take, which holds it up on the solo pool."""
    return max(settings.hard_limit_seconds, MIN_STUCK_SECONDS)


def _result(probe: CachedProbe[str | None]) -> str | None:
    try:
        return probe.result(ANSWER_SECONDS)
    except ProbeTimeout:
        return f"no answer within {ANSWER_SECONDS:g} s"
    except Exception as error:  # noqa: BLE001 - whatever it is, it is not well
        return f"could not be probed: {type(error).__name__}"


def _broker_problem(settings: WorkerSettings, broker: CeleryBroker) -> str | None:
    try:
        broker.waiting()
    except Exception as error:  # noqa: BLE001 - whatever a broker raises
        return f"the broker at {broker_place(settings)} can't be used: {fault_text(error)}"
    return broker_memory_problem(settings)
