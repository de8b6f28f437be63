"""What a worker looks up at each scrape: told part by part, and what is not well is not asked again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from refresher.ops.health import Verdict
from refresher.queries import Registry
from refresher.telemetry.prometheus import WorkerGauges

WELL = {"consumer": None, "cache": None, "broker": None, "graph": None}


class Worker:
    """A worker that is asked; ``asked`` has what was."""

    def __init__(self, **problems: str) -> None:
        self.checks, self.asked = {**WELL, **problems}, list[str]()
        gauges = WorkerGauges(
            lambda: Verdict(self.checks), self._noting("queue", 7), self._noting("letters", []), Registry()
        )
        self.registry = CollectorRegistry()
        gauges.register(self.registry)

    def _noting(self, name: str, answer: object) -> Callable[[], Any]:
        def ask() -> Any:
            self.asked.append(name)
            return answer

        return ask

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
    ("part", "left"), [("cache", ["queue"]), ("broker", ["letters"]), ("graph", ["queue", "letters"])]
)
def test_what_is_not_well_is_not_asked_again(part: str, left: list[str]) -> None:
    worker = Worker(**{part: "no answer"})
    worker.ready()
    assert worker.asked == left


def test_what_fails_all_the_same_is_left_out_and_the_others_are_told() -> None:
    def fails() -> int:
        raise OSError("away")

    gauges = WorkerGauges(lambda: Verdict(WELL), fails, list, Registry())
    assert [gauge.name for gauge in gauges.of_now()] == [
        "refresher_ready",
        "xfetch_dead_letters",
        "xfetch_quarantined_keys",
    ]
