"""Whether a worker is live, and whether it is ready: what a supervisor asks before it restarts it, or waits for it.

Live: the loop that takes messages goes round. Ready: it takes them, cache and broker take what is written, and the
graph answers. A worker that is not ready is not to be restarted for it: that would bring back none of the three.

Each of them is asked when somebody wants to know, on a thread of its own, at most every five seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from redis.exceptions import RedisError

from api_client.config.environment import without_password
from api_client.explain import duration
from api_client.transport.redis_py import reason
from api_client.trigger.broker import CeleryBroker
from refresher.ops.checks import broker_memory_problem, cache_problem, graph_problem
from refresher.ops.probe import Asked, ProbeTimeout
from refresher.settings import WorkerSettings

if TYPE_CHECKING:

    class _Step:
        """What is used of Celery's class, which has no types."""

        def __init__(self, parent: Any, **options: Any) -> None: ...
else:
    from celery.bootsteps import StartStopStep as _Step

BEAT_SECONDS: Final = 1.0


class Phase(StrEnum):
    """What the main process is at."""

    CONNECTING = "connecting"
    CONSUMING = "consuming"
    STOPPING = "stopping"


class Heartbeat:
    """The last sign of life of the loop. Thread-safe: what is written is one value each."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._beat_at = monotonic()
        self._is_heard = True
        self.phase: Phase = Phase.CONNECTING

    @property
    def silent_seconds(self) -> float:
        """For how long there was no beat; 0 where none can be heard, or is wanted."""
        if self.phase is Phase.STOPPING or not self._is_heard:
            return 0.0
        return self._monotonic() - self._beat_at

    def beat(self) -> None:
        """Note a beat."""
        self._beat_at = self._monotonic()

    def enter(self, phase: Phase, *, is_heard: bool) -> None:
        """Note what begins. ``is_heard``: it beats. The end is final."""
        self.beat()
        if self.phase is not Phase.STOPPING:
            self.phase, self._is_heard = phase, is_heard


class PulseStep(_Step):
    """A part of Celery's consumer that beats in its loop."""

    # The last to start before the loop: then the worker consumes.
    requires: ClassVar[tuple[str, ...]] = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._connecting(consumer)

    def start(self, consumer: Any) -> None:
        """Celery starts what needs the connection, and its loop after that."""
        # A green pool has no loop that could be looked at.
        pulse_of(consumer.app).enter(Phase.CONSUMING, is_heard=consumer.hub is not None)

    def register_with_event_loop(self, consumer: Any, hub: Any) -> None:
        """Beat from now on, until the connection is lost: Celery cancels with it what was registered here."""
        hub.call_repeatedly(BEAT_SECONDS, pulse_of(consumer.app).beat)

    def stop(self, consumer: Any) -> None:
        """Celery has lost the connection, or ends."""
        self._connecting(consumer)

    def _connecting(self, consumer: Any) -> None:
        # Another consumer, an application's own, does not tell of its attempts.
        pulse_of(consumer.app).enter(Phase.CONNECTING, is_heard=hasattr(consumer, "beats_while_connecting"))


def pulse_of(app: Any) -> Heartbeat:
    """Return the pulse of a Celery app; one that nobody looks at where the app was not set up for refreshes."""
    pulse: Heartbeat = getattr(app, "refresher_pulse", None) or Heartbeat()
    return pulse


KEPT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 2.5
MISSED_BEATS_SECONDS: Final = 5.0
"""A loop that was silent for so long is not ready: it may be held up for a moment only."""
MIN_STUCK_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether all is well, and what was looked at: None, or what is wrong with it."""

    checks: Mapping[str, str | None]

    @property
    def is_good(self) -> bool:
        """Whether nothing is wrong."""
        return not any(self.checks.values())

    def record(self) -> dict[str, Any]:
        """Return what is told of it, as JSON has it."""
        return {"ok": self.is_good, "checks": {name: said or "ok" for name, said in self.checks.items()}}


class Health:
    """A worker's health. Nothing is asked before somebody wants to know.

    Args:
        settings: where cache, broker and graph are.
        pulse: of the worker's loop.
    """

    def __init__(self, settings: WorkerSettings, pulse: Heartbeat) -> None:
        self._pulse = pulse
        self._stuck_seconds = stuck_seconds(settings)
        self._broker = CeleryBroker(settings.broker_url, settings.namespace)
        asks: dict[str, Callable[[], str | None]] = {
            "cache": partial(cache_problem, settings),
            "broker": partial(_broker_problem, settings, self._broker),
            "graph": partial(graph_problem, settings),
        }
        self._asked = {name: Asked(ask, kept_seconds=KEPT_SECONDS) for name, ask in asks.items()}

    def live(self) -> Verdict:
        """Tell whether the main process does what it is there for, or may be restarted."""
        silent = self._pulse.silent_seconds
        stuck = f"has been stuck for {duration(silent)}, {self._pulse.phase.value}"
        return Verdict({"consumer": stuck if silent > self._stuck_seconds else None})

    def ready(self) -> Verdict:
        """Tell whether a refresh that is asked for now would be done; takes 2.5 s at most."""
        for asked in self._asked.values():
            asked.begin()
        checks: dict[str, str | None] = {"consumer": self._consumer_problem()}
        checks |= {name: _told(asked) for name, asked in self._asked.items()}
        return Verdict(checks)

    def close(self) -> None:
        """Close the connection to the broker."""
        self._broker.close()

    def _consumer_problem(self) -> str | None:
        if self._pulse.phase is not Phase.CONSUMING:
            return f"takes no messages: {self._pulse.phase.value}"
        silent = self._pulse.silent_seconds
        return f"has not been heard of for {duration(silent)}" if silent > MISSED_BEATS_SECONDS else None


def stuck_seconds(settings: WorkerSettings) -> float:
    """Return for how long a loop may be silent: as long as a message may take, which holds it up on the solo pool."""
    return max(settings.hard_limit_seconds, MIN_STUCK_SECONDS)


def _told(asked: Asked[str | None]) -> str | None:
    try:
        return asked.within(ANSWER_SECONDS)
    except ProbeTimeout:
        return f"no answer within {ANSWER_SECONDS:g} s"
    except Exception as error:  # noqa: BLE001 - whatever it is, it is not well
        return f"could not be asked: {type(error).__name__}"


def _broker_problem(settings: WorkerSettings, broker: CeleryBroker) -> str | None:
    try:
        broker.waiting()
    except Exception as error:  # noqa: BLE001 - whatever a broker raises
        cause = error.__cause__ or error
        why = reason(cause) if isinstance(cause, RedisError | OSError) else type(cause).__name__
        return f"the broker at CACHE_BROKER_URL={without_password(settings.broker_url)} can't be used: {why}"
    return broker_memory_problem(settings)
