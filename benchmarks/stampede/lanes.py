"""Who runs: strategies, each read by one kind of readers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.stampede.options import Scenario
from benchmarks.stampede.strategies.ours import Ours
from benchmarks.stampede.strategies.strategy import Strategy
from benchmarks.stampede.terms import Kind


@dataclass(frozen=True, slots=True)
class Lane:
    """One strategy in one scenario. ``name`` is in the names of its keys, ``title`` in tables."""

    scenario: Scenario
    strategy: type[Strategy]
    kind: Kind
    title: str

    @property
    def name(self) -> str:
        """Its own among all."""
        return f"{self.scenario}-{self.strategy.name}-{self.kind}"


def lanes_of(
    scenario: Scenario, strategies: Sequence[type[Strategy]], readers: Kind | None
) -> tuple[list[Lane], dict[str, str]]:
    """Return who runs, and why the others do not, by title.

    Without a wish the classic scenario has processes. In the others a strategy is read by tasks where it can be, else
    by threads, and ours by both: times of threads and of tasks can't be compared.
    """
    lanes: list[Lane] = []
    left_out: dict[str, str] = {}
    for strategy in strategies:
        kind = readers or _usual(scenario, strategy)
        if missing := strategy.missing():
            left_out[strategy.title] = missing
        elif kind not in strategy.kinds:
            left_out[strategy.title] = f"can't be read by {kind}"
        else:
            lanes.append(Lane(scenario, strategy, kind, _title(strategy, kind, of_several=readers is None)))
    has_threads = any(lane.kind is Kind.THREADS for lane in lanes)
    if readers is None and has_threads and Ours in strategies:
        lanes.append(Lane(scenario, Ours, Kind.THREADS, _title(Ours, Kind.THREADS, of_several=True)))
    return lanes, left_out


def _usual(scenario: Scenario, strategy: type[Strategy]) -> Kind:
    if scenario is Scenario.WORKERS:
        return Kind.PROCESSES
    return Kind.ASYNCIO if Kind.ASYNCIO in strategy.kinds else Kind.THREADS


def _title(strategy: type[Strategy], kind: Kind, *, of_several: bool) -> str:
    return f"{strategy.title} (threads)" if of_several and kind is Kind.THREADS else strategy.title
