"""Runs the groups, shows what they come to, and keeps it."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from api_client import CacheError
from benchmarks import report
from benchmarks.about import about, made_folder
from benchmarks.errors import BenchError
from benchmarks.figures import Figure, Result
from benchmarks.hits.group import Group, Setting
from benchmarks.hits.groups import chosen
from benchmarks.options import BenchOptions
from benchmarks.payloads import described
from benchmarks.places import Place, place
from refresher.embedded import EmbeddedServerError

if TYPE_CHECKING:
    from rich.console import Console


def run_hits(options: BenchOptions, console: Console) -> None:
    """Measure all that was asked for. Ctrl-C ends it; the groups that were measured by then are shown and kept.

    Raises:
        BenchError: a group that does not exist, a folder that can't be written, or, when all else has been measured and
            kept, a group that failed.
        EmbeddedServerError, ConfigurationError, CacheUnavailable: a server can't be started or used.
    """
    groups = chosen(options)
    made_folder(options.out)
    results: list[Result] = []
    failed: list[str] = []
    with place(options.redis_url) as here, ExitStack() as stack:
        content, setting = _about(options, here), Setting(here, options, stack)
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
    began = time.monotonic()
    try:
        result = group.run(setting)
    except (BenchError, CacheError, EmbeddedServerError) as error:
        # What the other groups have measured, or will, is kept.
        failed.append(group.name)
        result = Result(group.name, group.title, figures=(Figure(group.name, "all", (), note=str(error)),))
    return replace(result, seconds=time.monotonic() - began)


def _about(options: BenchOptions, here: Place) -> dict[str, Any]:
    asked = {name: value for name, value in asdict(options).items() if name not in ("out", "redis_url", "seed")}
    scale = options.scale
    asked |= {"rounds": f"{scale.rounds} and one to warm up", "readers": scale.readers, "redis": here.title}
    asked |= {"payload": described(options.payload), "uvloop": options.uvloop, "only": ", ".join(options.only) or "all"}
    return about("hits", seed=options.seed, options=asked, servers={"redis-server": here.version})
