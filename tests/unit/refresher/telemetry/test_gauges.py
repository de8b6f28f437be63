"""Gauges that a worker queries at each scrape, and only of components that are ready."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from refresher.flow.ports import DropReason
from refresher.queries import Registry
from refresher.telemetry.metrics import WorkerGauges
from refresher.telemetry.prometheus import GaugeCollector, PrometheusWorkerEvents

WELL = {"consumer": None, "cache": None, "broker": None, "graph": None}
TIMES = ["xfetch_query_ttl_seconds", "xfetch_query_grace_seconds"]


class Worker:
    """A worker that is scraped; ``queried`` names the gauges that were."""

    def __init__(self, **problems: str) -> None:
        self.checks, self.queried = {**WELL, **problems}, list[str]()
        gauges = WorkerGauges(
            self._source("queue", 7), self._source("letters", []), self._source("shares", {}), self._source("tags", 0),
            self._source("feed", None), Registry(),
        )  # fmt: skip
        self.registry = CollectorRegistry()
        self.registry.register(GaugeCollector(lambda: self.checks, gauges))

    def _source(self, name: str, answer: object) -> Callable[[], Any]:
        def query_once() -> Any:
            self.queried.append(name)
            return answer

        return query_once

    def ready(self) -> dict[str, float]:
        return {
            sample.labels["part"]: sample.value
            for metric in self.registry.collect()
            for sample in metric.samples
            if sample.name == "refresher_ready"
        }


def test_the_ready_gauge_of_a_component_is_1_if_it_is_ready_and_else_0() -> None:
    assert Worker().ready() == dict.fromkeys(WELL, 1)
    assert Worker(graph="no answer").ready() == {**dict.fromkeys(WELL, 1), "graph": 0}


@pytest.mark.parametrize(
    ("part", "left"),
    [
        ("cache", ["queue"]),
        ("broker", ["letters", "tags", "shares", "feed"]),
    ],
)
def test_gauges_of_a_component_that_is_not_ready_are_not_queried(part: str, left: list[str]) -> None:
    worker = Worker(**{part: "no answer"})
    worker.ready()
    assert worker.queried == left


def names(collector: GaugeCollector) -> list[str]:
    return [gauge.name for gauge in collector.collect()]


def test_a_gauge_that_fails_is_left_out_and_the_others_are_exported(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> Any:
        raise OSError("away")

    dead = ["xfetch_dead_letters", "xfetch_quarantined_keys"]
    gauges = WorkerGauges(fails, list, fails, fails, fails, Registry())
    assert names(GaugeCollector(lambda: WELL, gauges)) == ["refresher_ready", *dead, *TIMES]
    assert names(GaugeCollector(fails, gauges)) == [*dead, *TIMES]
    assert [record.message for record in caplog.records] == ["could not collect some gauges: OSError"] * 9


def test_values_stored_and_messages_dropped_begin_at_0() -> None:
    registry = CollectorRegistry()
    PrometheusWorkerEvents(registry).expect(["q"])
    assert registry.get_sample_value("xfetch_refresh_completed_total", {"query": "q"}) == 0
    for reason in DropReason:
        assert registry.get_sample_value("refresher_messages_dropped_total", {"reason": reason.value}) == 0
