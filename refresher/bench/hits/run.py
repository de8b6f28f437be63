"""Runs the groups, shows what they come to, and keeps it."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from refresher.bench import report
from refresher.bench.hits.group import Setting
from refresher.bench.hits.groups import chosen
from refresher.bench.machine import machine, versions
from refresher.bench.options import BenchOptions
from refresher.bench.payloads import described
from refresher.bench.places import Place, place

if TYPE_CHECKING:
    from rich.console import Console


def run_hits(options: BenchOptions, console: Console) -> None:
    """Measure all that was asked for.

    Raises:
        BenchError: a group that does not exist.
        EmbeddedServerError, ConfigurationError, CacheUnavailable: a server can't be started or used.
        OSError: the results can't be written.
    """
    groups = chosen(options)
    options.out.mkdir(parents=True, exist_ok=True)  # before minutes are spent on what can't be kept
    results = []
    with place(options.redis_url) as here, ExitStack() as stack:
        about, setting = _about(options, here), Setting(here, options, stack)
        for group in groups:
            console.print(f"{group.name} …", style="dim")
            began = time.monotonic()
            result = group.run(setting)
            results.append(replace(result, seconds=time.monotonic() - began))
    console.print(_heading(about))
    report.show_rates(results, console)
    report.show_figures(results, console)
    for path in report.write(options.out, about, results):
        console.print(f"written: {path}")


def _about(options: BenchOptions, here: Place) -> dict[str, Any]:
    asked = {name: str(value) for name, value in asdict(options).items() if name not in ("out", "redis_url")}
    return {
        "benchmark": "hits",
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": versions() | {"redis-server": here.version},
        "redis": here.title,
        "payload": described(options.payload),
        "seed": options.seed,
        "options": asked,
        "scale": asdict(options.scale),
    }


def _heading(about: dict[str, Any]) -> str:
    hardware, software, scale = about["machine"], about["versions"], about["scale"]
    loop = "uvloop" if about["options"]["uvloop"] == "True" else "asyncio"
    lines = (
        ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in hardware.items()),
        ", ".join(f"{name} {value}" for name, value in software.items()),
        f"payload: {about['payload']}; Redis: {about['redis']}; loop: {loop}; seed: {about['seed']}",
        f"medians of {scale['rounds']} rounds, the warm-up not counted; readers of a herd: {scale['readers']:,}",
    )
    return "\n".join(lines)
