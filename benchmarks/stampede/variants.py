"""Variants: strategies, each with one kind of readers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.options import check_names
from benchmarks.reports.results import Table
from benchmarks.stampede.config import Kind, Scenario
from benchmarks.stampede.strategies.cashews import CashewsEarly, CashewsLock, CashewsSoft
from benchmarks.stampede.strategies.classic import Fetch, Locked, XFetch, XLocked
from benchmarks.stampede.strategies.ours import Ours
from benchmarks.stampede.strategies.peers import Aiocache, Cacheback, Dogpile
from benchmarks.stampede.strategies.strategy import Strategy

STRATEGIES: Final[Sequence[type[Strategy]]] = (
    Fetch, Locked, XFetch, XLocked, Ours, Dogpile, CashewsEarly, CashewsSoft, CashewsLock, Cacheback, Aiocache,
)  # fmt: skip
BY_NAME: Final = {strategy.name: strategy for strategy in STRATEGIES}


def chosen(names: Iterable[str]) -> list[type[Strategy]]:
    """Return the selected strategies in the usual order, or all if none is named."""
    wanted = list(names) or list(BY_NAME)
    check_names("strategy", wanted, BY_NAME)
    return [strategy for strategy in STRATEGIES if strategy.name in wanted]


@dataclass(frozen=True, slots=True)
class Variant:
    """One strategy in one scenario. ``name`` is part of its keys' names; ``title`` is for tables."""

    scenario: Scenario
    strategy: type[Strategy]
    kind: Kind

    @property
    def name(self) -> str:
        return f"{self.scenario}-{self.strategy.name}-{self.kind}"

    @property
    def title(self) -> str:
        return f"{self.strategy.title} (threads)" if self.kind is Kind.THREADS else self.strategy.title


def variants_of(scenario: Scenario, strategies: Sequence[type[Strategy]]) -> list[Variant]:
    """Return the variants of a scenario.

    The classic scenario has processes. In the others, tasks read a strategy if it supports that, otherwise threads;
    ours is read by both, since times of threads and tasks can't be compared.
    """
    variants = [
        Variant(scenario, strategy, Kind.PROCESSES if scenario is Scenario.WORKERS else strategy.kinds[-1])
        for strategy in strategies
    ]
    if Ours in strategies and any(variant.kind is Kind.THREADS for variant in variants):
        variants.append(Variant(scenario, Ours, Kind.THREADS))
    return variants


def limits(variants: Sequence[Variant]) -> Table:
    """Return the table of the strategies' limits."""
    rows = [(variant.title, str(variant.kind), variant.strategy.limits) for variant in variants]
    return Table("what each can't do", ("strategy", "read_by", "limits"), rows)
