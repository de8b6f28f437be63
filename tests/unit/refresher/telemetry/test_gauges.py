"""Gauges that a worker looks up at each scrape: part by part, and nothing of a part that is not ready."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from refresher.ops.health import Verdict
from refresher.queries import Registry
from refresher.telemetry.metrics import WorkerGauges
from refresher.telemetry.prometheus import GaugeCollector

WELL = {"consumer": None, "cache": None, "broker": None, "graph": None}


class Worker:
    """A worker that is scraped; ``looked_up`` has what was."""

    def __init__(self, **problems: str) -> None:
        self.checks, self.looked_up = {**WELL, **problems}, list[str]()
        gauges = WorkerGauges(
            self._noting("queue", 7), self._noting("letters", []), self._noting("shares", {}), self._noting("tags", 0),
            Registry(),
        )  # fmt: skip
        self.registry = CollectorRegistry()
        self.registry.register(GaugeCollector(lambda: Verdict(self.checks), gauges))

    def _noting(self, name: str, answer: object) -> Callable[[], Any]:
        def look() -> Any:
            self.looked_up.append(name)
            return answer

        return look

    def ready(self) -> dict[str, float]:
        return {
            sample.labels["part"]: sample.value
            for metric in self.registry.collect()
            for sample in metric.samples
            if sample.name == "refresher_ready"
        }


def test_each_part_is_1_where_all_is_well_else_0() -> None:
    assert Worker().ready() == dict.fromkeys(WELL, 1)
    assert Worker(graph="no answer").ready() == {**dict.fromkeys(WELL, 1), "graph": 0}


@pytest.mark.parametrize(
    ("part", "left"),
    [
        ("cache", ["queue"]),
        ("broker", ["letters", "tags", "shares"]),
        ("graph", ["queue", "letters", "tags", "shares"]),
    ],
)
def test_what_is_not_ready_is_not_looked_up(part: str, left: list[str]) -> None:
    worker = Worker(**{part: "no answer"})
    worker.ready()
    assert worker.looked_up == left


def names(collector: GaugeCollector) -> list[str]:
    return [gauge.name for gauge in collector.collect()]


TIMES = ["xfetch_query_ttl_seconds", "xfetch_query_grace_seconds"]


def test_what_fails_all_the_same_is_left_out_and_the_others_are_there(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> Any:
        raise OSError("away")

    dead = ["xfetch_dead_letters", "xfetch_quarantined_keys"]
    gauges = WorkerGauges(fails, list, fails, fails, Registry())
    assert names(GaugeCollector(lambda: Verdict(WELL), gauges)) == ["refresher_ready", *dead, *TIMES]
    assert names(GaugeCollector(fails, gauges)) == [*dead, *TIMES]
    assert [record.message for record in caplog.records] == ["could not collect some gauges: OSError"] * 7
