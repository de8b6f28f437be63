"""Whether a worker is live, and whether it is ready: what a supervisor asks before it restarts it, or waits for it.

Live: the loop that takes messages goes round. Ready: it takes them, cache and broker take what is written, and the
graph answers. A worker that is not ready is not to be restarted for it: that would bring back none of the three.

Each of them is asked when somebody wants to know, on a thread of its own, at most every five seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from redis.exceptions import RedisError

from api_client.broker import CeleryBroker
from api_client.environment import without_password
from api_client.explain_text import duration
from api_client.redis_edge import reason
from refresher.asking import Asked, NoAnswer
from refresher.checks import broker_memory_problem, cache_problem, graph_problem
from refresher.pulse import Phase, Pulse
from refresher.settings import WorkerSettings

KEPT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 2.5
MISSED_BEATS_SECONDS: Final = 5.0
"""A loop that was silent for so long is not ready: it may be held up for a moment only."""
LEAST_STUCK_SECONDS: Final = 30.0


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

    def __init__(self, settings: WorkerSettings, pulse: Pulse) -> None:
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
    return max(settings.hard_limit_seconds, LEAST_STUCK_SECONDS)


def _told(asked: Asked[str | None]) -> str | None:
    try:
        return asked.within(ANSWER_SECONDS)
    except NoAnswer:
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
