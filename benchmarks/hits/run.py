"""List of groups, and a run of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks.apparatus.entries import DESCRIBED
from benchmarks.apparatus.servers import running_servers
from benchmarks.errors import BenchError
from benchmarks.hits.costs import Costs
from benchmarks.hits.group import Group
from benchmarks.hits.memory import Memory, Million
from benchmarks.hits.options import HitsOptions
from benchmarks.hits.rates import MODES
from benchmarks.hits.single_reads import HungBroker, Triggering
from benchmarks.reports.provenance import make_folder, provenance
from benchmarks.reports.report import measured, present

if TYPE_CHECKING:
    from rich.console import Console

GROUPS: Final[Sequence[Group]] = (
    *MODES,
    Triggering("trigger", "a read that triggers a refresh"),
    HungBroker("hung-broker", "reads while the broker hangs"),
    Costs("costs", "what keys and values cost"),
    Memory("memory", "what an entry costs in Redis"),
    Million("million", "a full cache", is_long=True),
)


def run(options: HitsOptions, console: Console) -> None:
    """Measure what the options select. Ctrl-C ends it; the groups that were measured by then are shown and kept.

    Raises:
        BenchError: a group that does not exist, a folder that can't be written, or, when all else has been measured and
            kept, a group that failed.
        EmbeddedServerError, ConfigurationError, CacheUnavailable: a server can't be started or used.
    """
    groups = _chosen(options)
    make_folder(options.out)
    with running_servers(options.redis_url) as servers:
        about = provenance(
            "hits", options, rounds=options.scale.rounds, servers={"server": servers.version},
            more={"payload": DESCRIBED, "redis": servers.title},
        )  # fmt: skip
        results = measured(((group.name, partial(group.run, servers, options)) for group in groups), console)
    present(options.out, about, results, console)


def _chosen(options: HitsOptions) -> list[Group]:
    names = [group.name for group in GROUPS]
    for name in options.only:
        if name not in names:
            raise BenchError(f"no group {name!r}; there are {', '.join(names)}")
    if options.only:
        return [group for group in GROUPS if group.name in options.only]
    return [group for group in GROUPS if options.full or options.quick or not group.is_long]
