"""The list of groups, and a run of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from rich.console import Console

from benchmarks.apparatus.entries import DESCRIBED
from benchmarks.apparatus.servers import Servers, running_servers
from benchmarks.hits.costs import measured_costs
from benchmarks.hits.memory import measured_memory
from benchmarks.hits.options import HitsOptions
from benchmarks.hits.rates import MODES
from benchmarks.hits.single_reads import measured_triggers
from benchmarks.reports.report import Groups, report
from benchmarks.reports.results import Result

GROUPS: Final[Mapping[str, Callable[[Servers, HitsOptions], Result]]] = {
    **{mode.name: mode.run for mode in MODES},
    "trigger": measured_triggers,
    "costs": measured_costs,
    "memory": measured_memory,
}


def run(options: HitsOptions, console: Console) -> None:
    """Measure what the options select."""
    versions: dict[str, str] = {}
    report(
        "hits", options, console, _groups(options, versions),
        versions=versions, rounds=options.scale.rounds, more={"payload": DESCRIBED},
    )  # fmt: skip


def _groups(options: HitsOptions, versions: dict[str, str]) -> Groups:
    selected = options.selected(GROUPS)
    with running_servers() as servers:
        versions |= servers.versions
        for name, measure in selected.items():
            yield name, partial(measure, servers, options)
