"""``refresher bench``: a benchmark a file, and a line here."""

from __future__ import annotations

import typer

from refresher.cli.bench_hits import hits
from refresher.cli.bench_page import page
from refresher.cli.bench_simulate import simulate
from refresher.cli.bench_stampede import stampede
from refresher.cli.bench_topology import topology
from refresher.cli.bench_worker import worker

bench = typer.Typer(
    name="bench", help="Benchmarks; each starts the servers that it needs.", no_args_is_help=True, rich_markup_mode=None
)
bench.command()(hits)
bench.command()(simulate)
bench.command()(stampede)
bench.command()(page)
bench.command()(topology)
bench.command()(worker)
