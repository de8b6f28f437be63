"""``refresher doctor``."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from api_client.config.settings import ReaderSettings
from api_client.errors import CacheError
from api_client.explain import duration
from refresher.cli.arguments import Json
from refresher.cli.output import as_json, counted, plain
from refresher.errors import RefresherError
from refresher.ops.doctor.findings import Finding, Level
from refresher.ops.doctor.registry import findings
from refresher.settings import WorkerSettings

if TYPE_CHECKING:
    from refresher.checker.monitor import WatchResult

DEFAULT_WATCH_SECONDS: Final = 30.0
DEFAULT_READS_PER_SECOND: Final = 50.0
MAX_SHOWN: Final = 20


def doctor(
    watch: Annotated[
        bool, typer.Option("--watch", help="Also write to the graph, invalidate, read, and check what readers got.")
    ] = False,
    seconds: Annotated[
        float, typer.Option(min=1, max=86_400, help="How long to watch; Ctrl-C ends it earlier.")
    ] = DEFAULT_WATCH_SECONDS,
    reads_per_second: Annotated[
        float, typer.Option(min=1, max=1_000, help="Reads per second while watching.")
    ] = DEFAULT_READS_PER_SECOND,
    as_reader: Annotated[
        bool, typer.Option("--as-reader", help="In a reader's environment: check only what it needs.")
    ] = False,
    as_json_: Json = False,
) -> None:
    """Check cache, readers, broker, workers and graph, and show what is wrong and how to fix it.

    Everything is taken from the environment, as workers and readers take it. --watch needs workers that know the query
    refresher.watch (REFRESHER_QUERIES=…,refresher.watch), and a user of the graph that may write:
    REFRESHER_WATCH_USER and REFRESHER_WATCH_PASSWORD. It creates five nodes RefresherWatch, and removes them.
    With a change feed that watches them, it measures how long after a commit a reader gets the new value.

    Exits with 1 when there is a problem, or when the cache broke a guarantee while it watched.
    """
    worker, reader = WorkerSettings.from_env(), ReaderSettings.from_env()
    watched: WatchResult | None = None
    found = list(_printed(findings(worker, reader, as_reader=as_reader), as_json_))
    if watch:
        try:
            watched = _watch(worker, reader, seconds, reads_per_second)
        except (CacheError, RefresherError) as error:
            found += _printed([Finding(Level.PROBLEM, str(error), check="watch")], as_json_)
    is_good = all(one.level is not Level.PROBLEM for one in found) and (watched is None or _is_good(watched))
    if as_json_:
        records = [one.record() for one in found]
        typer.echo(as_json({"ok": is_good, "findings": records, "watch": _record_of(watched)}))
    elif watched is not None:
        _print_watch(watched)
    raise typer.Exit(0 if is_good else 1)


def _printed(several: Iterable[Finding], is_quiet: bool) -> Iterator[Finding]:
    """Print findings as they come, unless they are printed as JSON at the end."""
    for finding in several:
        if not is_quiet:
            _print(finding)
        yield finding


def _watch(worker: WorkerSettings, reader: ReaderSettings, seconds: float, reads_per_second: float) -> WatchResult:
    from refresher.checker.monitor import watch
    from refresher.checker.settings import WatchSettings
    from refresher.embedded.interrupts import Interrupts
    from refresher.graph.driver import open_driver

    who = WatchSettings.from_env()
    # A supervisor's SIGTERM ends it like Ctrl-C, so that its nodes are removed.
    ends = Interrupts.handled(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    with ends, closing(open_driver(worker, who.user, who.password)) as driver:
        return watch(
            reader, driver, worker.neo4j_database or None, span_seconds=seconds, reads_per_second=reads_per_second,
        )  # fmt: skip


def _is_good(watched: WatchResult) -> bool:
    return not watched.broken and not watched.failures


def _print(finding: Finding) -> None:
    mark = {Level.OK: "ok", Level.WARNING: "warning", Level.PROBLEM: "PROBLEM"}[finding.level]
    typer.secho(
        f"{mark:<9}{finding.check}: {plain(finding.message)}",
        fg={Level.OK: None, Level.WARNING: "yellow", Level.PROBLEM: "red"}[finding.level],
    )
    if finding.remedy:
        typer.echo(f"{'':<9}→ {finding.remedy}")


def _print_watch(watched: WatchResult) -> None:
    states = ", ".join(f"{count} {state.value}" for state, count in watched.states.items())
    typer.echo(
        f"watched {watched.seconds:.1f} s: {watched.reads} reads ({states}), {watched.soft_invalidations} soft and "
        f"{watched.hard_invalidations} hard invalidations, slowest repair {watched.slowest_repair_seconds:.2f} s"
    )
    if watched.feed:
        usual, longest = duration(median(watched.feed)), duration(max(watched.feed))
        typer.echo(
            f"change feed: {counted(len(watched.feed), 'write')}, read {usual} after the commit, at most {longest}"
        )
    for kind, count in watched.failures.items():
        typer.secho(f"PROBLEM  {count} reads ended with {kind}", fg="red")
    for sentence in watched.broken[:MAX_SHOWN]:
        typer.secho(f"BROKEN   {sentence}", fg="red")
    if len(watched.broken) > MAX_SHOWN:
        typer.echo(f"and {len(watched.broken) - MAX_SHOWN} more: --json prints all")
    if _is_good(watched):
        typer.echo("no read that began after an invalidation got an older value as fresh")


def _record_of(watched: WatchResult | None) -> dict[str, Any] | None:
    if watched is None:
        return None
    return {**asdict(watched), "states": dict(watched.states), "failures": dict(watched.failures)}
