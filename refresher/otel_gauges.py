"""What a worker does not count but looks up at each export, as OpenTelemetry's observable gauges."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from refresher.dead_letters import DeadLetter, letters_by_query
from refresher.queries import Registry

log: Final = logging.getLogger(__name__)

Look: TypeAlias = Callable[[], Mapping[str, float]]
"""Returns values by query; of what is no query's, by ''."""


@dataclass(frozen=True, slots=True)
class OTelGauges:
    """Gauges that are looked up at each export. What can't be told is left out: a gap in the graph says so.

    Args:
        waiting: how many refreshes wait in the broker.
        letters: the dead letters that are kept.
        queries: what the worker can load.
    """

    waiting: Callable[[], int]
    letters: Callable[[], Iterable[DeadLetter]]
    queries: Registry

    def observe(self, meter: Meter) -> None:
        """Have a meter look them up."""
        looks: dict[str, tuple[str, str, Look]] = {
            "xfetch_refresh_queue_size": ("", "Early and stale refreshes that wait", lambda: {"": self.waiting()}),
            "xfetch_dead_letters": ("", "Dead letters that are kept", lambda: self._letters()[0]),
            "xfetch_quarantined_keys": (
                "", "Keys of which several refreshes in a row were given up", lambda: self._letters()[1],
            ),
            "xfetch_query_ttl_seconds": (
                "s", "Soft expiry of the query's values after their load",
                lambda: {query.name: query.ttl_seconds for query in self.queries},
            ),
            "xfetch_query_grace_seconds": (
                "s", "For how long they may be served after it",
                lambda: {query.name: query.grace_seconds for query in self.queries},
            ),
        }  # fmt: skip
        for name, (unit, help_, look) in looks.items():
            meter.create_observable_gauge(name, [_looking(look)], unit, help_)

    def _letters(self) -> tuple[Mapping[str, float], Mapping[str, float]]:
        return letters_by_query(self.letters(), (query.name for query in self.queries))


def _looking(look: Look) -> Callable[[CallbackOptions], list[Observation]]:
    def looked(_: CallbackOptions) -> list[Observation]:
        try:
            return [Observation(value, {"query": query} if query else {}) for query, value in look().items()]
        except Exception as error:  # noqa: BLE001 - whatever is away now: the export goes on
            log.warning("an export goes without some gauges: %s", type(error).__name__)
            return []

    return looked
