"""``refresher bench``: a benchmark a file, and a line here."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from typing import Final, ParamSpec

import typer

from refresher.cli.bench_hits import hits
from refresher.cli.bench_page import page
from refresher.cli.bench_simulate import simulate
from refresher.cli.bench_stampede import stampede
from refresher.cli.bench_topology import topology
from refresher.cli.bench_worker import worker

P = ParamSpec("P")

# Of the rest of refresher[bench] most are peers: who is not installed is left out.
_NEEDED: Final = ("numpy", "matplotlib")


def _looked_after(command: Callable[P, None]) -> Callable[P, None]:
    """Return the command, which says at once what is not installed, and not when minutes have been measured."""

    @wraps(command)
    def run(*args: P.args, **options: P.kwargs) -> None:
        from refresher.bench.errors import BenchError

        for module in _NEEDED:
            if find_spec(module) is None:
                raise BenchError(f"{module} is not installed: pip install 'refresher[bench]'")
        command(*args, **options)

    return run


bench: Final = typer.Typer(
    name="bench", help="Benchmarks; each starts the servers that it needs.", no_args_is_help=True, rich_markup_mode=None
)
bench.command(short_help="What a hit costs, beside other caches.")(_looked_after(hits))
bench.command(short_help="TTL, β, workers and outages at any size.")(_looked_after(simulate))
bench.command(short_help="Strategies, while a hot entry expires.")(_looked_after(stampede))
bench.command(short_help="Whether refreshing hubs earlier pays.")(_looked_after(topology))
bench.command(short_help="What a refresh costs beside the load.")(_looked_after(worker))
bench.command(short_help="A page of what benchmarks have kept.")(_looked_after(page))
