"""``refresher bench``: a benchmark a file, and a line here."""

from __future__ import annotations

from typing import Final

import typer

from refresher.cli.bench_hits import hits
from refresher.cli.bench_page import page
from refresher.cli.bench_simulate import simulate
from refresher.cli.bench_stampede import stampede
from refresher.cli.bench_topology import topology
from refresher.cli.bench_worker import worker

bench: Final = typer.Typer(
    name="bench", help="Benchmarks; each starts the servers that it needs.", no_args_is_help=True, rich_markup_mode=None
)
bench.command(short_help="What a hit costs, beside other caches.")(hits)
bench.command(short_help="TTL, β, workers and outages at any size.")(simulate)
bench.command(short_help="Strategies, while a hot entry expires.")(stampede)
bench.command(short_help="Whether refreshing hubs earlier pays.")(topology)
bench.command(short_help="What a refresh costs beside the load.")(worker)
bench.command(short_help="A page of what benchmarks have kept.")(page)
