"""Liveness and readiness of a worker, for a supervisor.

Live means that the loop that consumes messages runs; ready, that it consumes them, cache and broker are writable, and
the graph replies. Don't restart a worker for not being ready: that would bring back none of the three.

Each of the three is probed on request, on its own thread, at most every five seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from api_client.explain import duration
from api_client.trigger.broker import CeleryBroker, fault_text
from refresher.ops.broker import broker_place
from refresher.ops.forks import fork_gate
from refresher.ops.heartbeat import Heartbeat, Phase
from refresher.ops.probe import CachedProbe, ProbeTimeout
from refresher.ops.startup_checks import broker_memory_problem, cache_problem, graph_problem
from refresher.settings import WorkerSettings

TTL_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 2.5
MISSED_BEATS_SECONDS: Final = 5.0
"""Silence after which a loop is not ready, though it may only be held up for a moment."""
MIN_STUCK_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a check: by part, None or the fault."""

    checks: Mapping[str, str | None]

    @property
    def is_good(self) -> bool:
        """True if nothing is wrong."""
        return not any(self.checks.values())

    def record(self) -> dict[str, Any]:
        """Return the verdict for JSON."""
        return {"ok": self.is_good, "checks": {name: fault or "ok" for name, fault in self.checks.items()}}


class Health:
    """A worker's health. Nothing is probed before the first request.

    Args:
        settings: the worker's settings, with the addresses of cache, broker and graph.
        heartbeat: the heartbeat of the worker's loop.
    """

    def __init__(self, settings: WorkerSettings, heartbeat: Heartbeat) -> None:
        self._heartbeat = heartbeat
        self._stuck_seconds = stuck_seconds(settings)
        self._broker = CeleryBroker(settings.broker_url, settings.namespace)
        probes: dict[str, Callable[[], str | None]] = {
            "cache": partial(cache_problem, settings),
            "broker": partial(broker_problem, settings, self._broker),
            "graph": partial(graph_problem, settings),
        }
        self._probes = {
            name: CachedProbe(fork_gate.guards(probe), ttl_seconds=TTL_SECONDS) for name, probe in probes.items()
        }

    def live(self) -> Verdict:
        """Check whether the main process works; otherwise it may be restarted."""
        silent = self._heartbeat.silent_seconds
        stuck = f"has been stuck for {duration(silent)}, {self._heartbeat.phase.value}"
        return Verdict({"consumer": stuck if silent > self._stuck_seconds else None})

    def ready(self) -> Verdict:
        """Check whether a refresh triggered now would be done; takes at most 2.5 s."""
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
    """Return the longest silence of a live loop: the time of one message, which blocks the loop of the solo pool."""
    return max(settings.hard_limit_seconds, MIN_STUCK_SECONDS)


def _result(probe: CachedProbe[str | None]) -> str | None:
    try:
        return probe.result(ANSWER_SECONDS)
    except ProbeTimeout:
        return f"no answer within {ANSWER_SECONDS:g} s"
    except Exception as error:  # noqa: BLE001 - whatever it is, it is not well
        return f"could not be probed: {type(error).__name__}"


def broker_problem(settings: WorkerSettings, broker: CeleryBroker) -> str | None:
    """Return the reason why a worker can't use its broker, or None."""
    try:
        broker.waiting()
    except Exception as error:  # noqa: BLE001 - whatever a broker raises
        return f"the broker at {broker_place(settings)} can't be used: {fault_text(error)}"
    return broker_memory_problem(settings)
