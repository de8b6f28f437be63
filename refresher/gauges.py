"""What a worker does not count but looks up at each scrape: its health, its queue, dead letters, its queries' times."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from refresher.dead_letters import letters_by_query

if TYPE_CHECKING:
    from prometheus_client import Metric
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import CollectorRegistry

    from refresher.dead_letters import DeadLetter
    from refresher.health import Verdict
    from refresher.queries import Registry

log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerGauges:
    """Gauges that are asked for at each scrape. Needs prometheus_client.

    Args:
        ready: whether the worker is ready, bounded in time. What it says is not well is not asked once more.
        waiting: how many refreshes wait in the broker.
        letters: the dead letters that are kept.
        queries: what the worker can load.

    What can't be told is left out: a gap in the graph says so.
    """

    ready: Callable[[], Verdict]
    waiting: Callable[[], int]
    letters: Callable[[], Iterable[DeadLetter]]
    queries: Registry

    def register(self, registry: CollectorRegistry) -> None:
        """Have a registry collect them."""
        for gauges in (self.of_now, self.times):
            registry.register(_AtEachScrape(gauges))

    def of_now(self) -> Iterator[GaugeMetricFamily]:
        """Yield what the worker's surroundings are like now."""
        from prometheus_client.core import GaugeMetricFamily

        checks = self.ready().checks
        ready = GaugeMetricFamily(
            "refresher_ready", "Whether all is well with what the worker needs: 1, or 0", labels=("part",)
        )
        for part, problem in checks.items():
            ready.add_metric((part,), float(problem is None))
        yield ready
        if not checks.get("broker"):
            yield from _told(self._queue)
        if not checks.get("cache"):
            yield from _told(self._dead)

    def times(self) -> Iterator[GaugeMetricFamily]:
        """Yield what the queries say of their values."""
        ttls = {query.name: query.ttl_seconds for query in self.queries}
        graces = {query.name: query.grace_seconds for query in self.queries}
        yield _by_query("xfetch_query_ttl_seconds", "Soft expiry of the query's values after their load", ttls)
        yield _by_query("xfetch_query_grace_seconds", "For how long they may be served after it", graces)

    def _queue(self) -> Iterator[GaugeMetricFamily]:
        from prometheus_client.core import GaugeMetricFamily

        yield GaugeMetricFamily(
            "xfetch_refresh_queue_size", "Early and stale refreshes that wait", value=self.waiting()
        )

    def _dead(self) -> Iterator[GaugeMetricFamily]:
        kept, quarantined = letters_by_query(self.letters(), (query.name for query in self.queries))
        yield _by_query("xfetch_dead_letters", "Dead letters that are kept", kept)
        yield _by_query(
            "xfetch_quarantined_keys", "Keys of which several refreshes in a row were given up", quarantined
        )


class _AtEachScrape:
    """Collects gauges when they are asked for."""

    def __init__(self, gauges: Callable[[], Iterable[GaugeMetricFamily]]) -> None:
        self._gauges = gauges

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> list[GaugeMetricFamily]:
        return _told(self._gauges)


def _told(gauges: Callable[[], Iterable[GaugeMetricFamily]]) -> list[GaugeMetricFamily]:
    try:
        return list(gauges())
    except Exception as error:  # noqa: BLE001 - whatever is away now: the scrape goes on
        log.warning("a scrape goes without some gauges: %s", type(error).__name__)
        return []


def _by_query(name: str, help_: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    from prometheus_client.core import GaugeMetricFamily

    gauge = GaugeMetricFamily(name, help_, labels=("query",))
    for query, value in values.items():
        gauge.add_metric((query,), value)
    return gauge
