"""List of groups, and a run of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from api_client import CacheError
from benchmarks.apparatus.entries import described
from benchmarks.apparatus.servers import Servers, running_servers
from benchmarks.errors import BenchError
from benchmarks.hits.command import BenchOptions
from benchmarks.hits.group import Group, Setting
from benchmarks.hits.memory import Memory, Million
from benchmarks.hits.rates import MODES
from benchmarks.hits.single_reads import HungBroker, Triggering
from benchmarks.hits.stampedes import Kind, StampedeGroup
from benchmarks.reports import report
from benchmarks.reports.provenance import make_folder, provenance
from benchmarks.reports.results import Figure, Result
from refresher.embedded import EmbeddedServerError

GROUPS: Final[Sequence[Group]] = (
    *MODES,
    Triggering("trigger", "a read that triggers a refresh"),
    HungBroker("hung-broker", "reads while the broker hangs"),
    StampedeGroup("herd-threads", "concurrent readers of one key in 4 processes, threads", kind=Kind.THREADS),
    StampedeGroup("herd-asyncio", "concurrent readers of one key in 4 processes, asyncio", kind=Kind.ASYNCIO),
    Memory("memory", "what an entry costs in Redis"),
    Million("million", "a full cache", is_long=True),
)


def chosen_groups(options: BenchOptions) -> list[Group]:
    """Return the selected groups.

    Raises:
        BenchError: there is none of a name.
    """
    names = [group.name for group in GROUPS]
    unknown = [name for name in options.only if name not in names]
    if unknown:
        raise BenchError(f"no group {unknown[0]!r}; there are {', '.join(names)}")
    if options.only:
        return [group for group in GROUPS if group.name in options.only]
    return [group for group in GROUPS if options.full or options.quick or not group.is_long]


if TYPE_CHECKING:
    from rich.console import Console


def run_hits(options: BenchOptions, console: Console) -> None:
    """Measure what the options select. Ctrl-C ends it; the groups that were measured by then are shown and kept.

    Raises:
        BenchError: a group that does not exist, a folder that can't be written, or, when all else has been measured and
            kept, a group that failed.
        EmbeddedServerError, ConfigurationError, CacheUnavailable: a server can't be started or used.
    """
    groups = chosen_groups(options)
    make_folder(options.out)
    results: list[Result] = []
    failed: list[str] = []
    with running_servers(options.redis_url) as here, ExitStack() as stack:
        content, setting = _provenance(options, here), Setting(here, options, stack)
        for group in groups:
            console.print(f"{group.name} …", style="dim")
            try:
                results.append(_measured(group, setting, failed))
            except KeyboardInterrupt:
                if not results:
                    raise
                console.print(report.INTERRUPTED)
                break
    report.present(options.out, content, results, console)
    if failed:
        raise BenchError(f"not measured: {', '.join(failed)}; the table says why")


def _measured(group: Group, setting: Setting, failed: list[str]) -> Result:
    try:
        return group.run(setting)
    except (BenchError, CacheError, EmbeddedServerError) as error:
        # What the other groups have measured, or will, is kept.
        failed.append(group.name)
        return Result(group.name, group.title, figures=(Figure("all", (), note=str(error)),))


def _provenance(options: BenchOptions, here: Servers) -> dict[str, Any]:
    used = {
        name: value for name, value in asdict(options).items() if name not in ("out", "redis_url", "seed", "rounds")
    }
    scale = options.scale
    used |= {"readers": scale.readers, "redis": here.title}
    used |= {
        "payload": described(options.payload),
        "uvloop": options.uvloop,
        "only": ", ".join(options.only) or "all",
    }
    return provenance(
        "hits",
        seed=options.seed,
        rounds=scale.rounds,
        options=used,
        servers={"redis-server": here.version},
    )
