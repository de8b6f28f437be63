"""``refresher size``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Final

import typer

from api_client.explain import duration
from api_client.protocol.messages import MAX_BATCH
from refresher.cli.arguments import duration_of
from refresher.cli.output import as_json, details_grid, wide_console
from refresher.ops.sizing import Sizing
from refresher.ops.sizing import size as sizing_of

_WIDTH: Final = 13
_MANY_CORES: Final = 1.0


def size(
    keys: Annotated[float, typer.Option(min=1, max=1e12, help="Keys in use, that is, read within a TTL: 1e6.")],
    ttl: Annotated[str, typer.Option(metavar="DURATION", help="Of their values: 10m.")],
    load: Annotated[str, typer.Option(metavar="DURATION", help="What a load takes: 50ms. Of a batch as a whole.")],
    batch: Annotated[
        int, typer.Option(min=1, max=MAX_BATCH, help="Refreshes that one load does: @query(batch=…).")
    ] = 1,
    value_bytes: Annotated[int, typer.Option(min=0, help="A value as it is stored.")] = 1_000,
    as_json_: Annotated[bool, typer.Option("--json", help="As JSON; durations in seconds.")] = False,
) -> None:
    """Estimate the workers, processors and memory that keep so many keys fresh; an order of magnitude.

    No server is asked. Computed from what the benchmark of workers measured on two cores.
    """
    ttl_seconds, load_seconds = duration_of(ttl, "--ttl"), duration_of(load, "--load")
    if ttl_seconds <= 0:
        raise typer.BadParameter(f"{ttl!r}: allowed is more than 0", param_hint="--ttl")
    if load_seconds >= ttl_seconds:
        raise typer.BadParameter(
            f"{load!r}: allowed is less than --ttl, or no value is ever fresh", param_hint="--load"
        )
    found = sizing_of(
        keys=round(keys), ttl_seconds=ttl_seconds, load_seconds=load_seconds, batch=batch, value_bytes=value_bytes
    )
    if as_json_:
        typer.echo(as_json(asdict(found)))
        return
    wide_console().print(details_grid(_rows(found, ttl_seconds, batch), _WIDTH))
    if batch == 1 and found.cores > _MANY_CORES:
        typer.echo(f"In batches it takes a tenth of the processors: see @query(batch=…) and --batch {MAX_BATCH}.")


def _rows(found: Sizing, ttl_seconds: float, batch: int) -> list[tuple[str, str]]:
    messages = f" in {found.messages_per_second:,.1f} messages" if batch > 1 else ""
    return [
        (
            "refreshes",
            f"{found.refreshes_per_second:,.1f} a second{messages}: each key once in {duration(ttl_seconds)}",
        ),
        ("loads at once", f"{found.loads_at_once:,}, with a third for peaks; the graph sees no more"),
        ("workers", f"{found.workers:,}, with -c {found.processes_each:,} each"),
        ("processors", f"{found.cores:,.1f}, beside what loaders compute"),
        ("memory", f"workers {_shown(found.workers_bytes)}, the cache's Redis {_shown(found.cache_bytes)}"),
    ]


def _shown(count: int) -> str:
    """Return an amount of memory with two digits: "1.4 GB"."""
    for unit, name in ((1e9, "GB"), (1e6, "MB")):
        if count >= unit:
            return f"{count / unit:,.1f} {name}"
    return f"{count / 1e3:,.0f} KB"
