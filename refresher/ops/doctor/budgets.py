"""The check of the load budgets against the needs of the keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from api_client.explain import duration
from api_client.protocol.budget import Budget
from refresher.ops.budgets import ALL
from refresher.ops.doctor.deployment import Deployment
from refresher.ops.doctor.findings import Finding, ok, warning
from refresher.ops.scan import QueryKeys
from refresher.queries import Query, registry

LONG_WAIT_SECONDS: Final = 1.0
"""Longer than refreshes of a burst wait."""


def budgets(deployment: Deployment) -> Finding:
    """Compare the budgets with the loads in progress, and with those that the keys of a bounded scan need."""
    bounded = [one for one in _budgeted(deployment) if one.budget.is_bounded]
    if not bounded:
        return ok("none is set")
    if short := [text for one in bounded if (text := one.shortage())]:
        return warning(
            "; ".join(short),
            "raise it as far as the graph can bear, else load less often: a longer ttl=, fewer keys, batch=",
        )
    return ok("; ".join(f"{one.name}: {one.budget}, {one.in_progress} in progress" for one in bounded))


@dataclass(frozen=True, slots=True)
class _Budgeted:
    """A budget, its loads in progress, and its queued loads. ``needed`` is an upper bound, in loads/s."""

    name: str
    budget: Budget
    in_progress: int
    needed: float
    queued: int
    longest_wait_seconds: float

    def shortage(self) -> str:
        """Return the reason why refreshes wait for the budget, or "" if they do not, or wait for something else."""
        if self.longest_wait_seconds < LONG_WAIT_SECONDS:
            return ""
        waiting = f"{self.queued} queued, the oldest for {duration(self.longest_wait_seconds)}"
        if self.budget.rate is not None and self.needed > self.budget.rate:
            needed = f"its keys need up to {self.needed:.3g} loads a second"
            return f"{self.name}: {waiting}; {needed}, and {self.budget.rate:g} are allowed"
        if self.budget.concurrency is not None and self.in_progress >= self.budget.concurrency:
            return f"{self.name}: {waiting}; all of {self.budget.concurrency} loads at once are in progress"
        return ""


def _shortest_ttl_seconds(query: Query) -> float:
    """Return the shorter TTL of values and of empty ones, since a scan reads no values and can't tell them apart."""
    empty_seconds = query.negative_ttl_seconds
    return query.ttl_seconds if empty_seconds is None else min(query.ttl_seconds, empty_seconds)


def _budgeted(deployment: Deployment) -> Iterator[_Budgeted]:
    seen, of_all = deployment.keys, deployment.worker.budget
    in_progress = seen.budgets or {}
    queries = {query.name: query for query in registry}  # the last of several versions, whose keys are counted together
    needs = {
        name: row.keys / shortest_seconds / (query.batch or 1)
        for name, query in queries.items()
        if (row := seen.queries.get(name)) is not None and (shortest_seconds := _shortest_ttl_seconds(query))
    }
    rows = seen.queries.values()
    yield _Budgeted(
        "all queries", of_all, in_progress.get(ALL, 0), sum(needs.values()), sum(row.queued for row in rows),
        max((row.longest_wait or 0.0 for row in rows), default=0.0),
    )  # fmt: skip
    for name, query in queries.items():
        row = seen.queries.get(name) or QueryKeys(name)
        yield _Budgeted(
            name, query.budget, in_progress.get(name, 0), needs.get(name, 0.0), row.queued, row.longest_wait or 0.0
        )
