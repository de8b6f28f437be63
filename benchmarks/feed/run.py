"""Run of the groups on their servers."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Final

from rich.console import Console

from benchmarks.apparatus.processes import prepare
from benchmarks.feed.carried import measured_delay, measured_throughput
from benchmarks.feed.options import FeedOptions
from benchmarks.feed.plant import Plant
from benchmarks.feed.price import measured_price
from benchmarks.feed.savings import measured_savings
from benchmarks.reports.report import Groups, report

GROUPS: Final = {
    "delay": measured_delay,
    "price": measured_price,
    "throughput": measured_throughput,
    "savings": measured_savings,
}


def run(options: FeedOptions, console: Console) -> None:
    """Measure what the options select."""
    versions: dict[str, str] = {}
    report("feed", options, console, _groups(options, versions), versions=versions, rounds=options.scale.rounds)


def _groups(options: FeedOptions, versions: dict[str, str]) -> Groups:
    selected = options.selected(GROUPS)
    prepare()
    with ExitStack() as stack:
        plant = Plant(stack)
        versions |= plant.versions
        for name, measure in selected.items():
            yield name, partial(measure, plant, options)
