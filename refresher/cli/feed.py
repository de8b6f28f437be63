"""``refresher feed``: the graph's change feed."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from api_client.explain import duration
from refresher.cli.output import as_json
from refresher.settings import WorkerSettings

if TYPE_CHECKING:
    from refresher.feed.changes import Changes
    from refresher.feed.triggers import Triggers
    from refresher.feed.watches import Watches

feed: Final = typer.Typer(
    help="Invalidate what depends on each change of the graph, whoever wrote it.", no_args_is_help=True
)


@feed.command()
def install() -> None:
    """Install the trigger that notes each change of what is watched, in Neo4j with APOC."""
    with _triggers() as (triggers, _):
        watches = _watches()
        triggers.install(watches)
        typer.echo(f"installed: {_shown(watches)}")
        typer.echo("now run one consumer, refresher feed run, or more: one works, the others wait")


@feed.command()
def run() -> None:
    """Take changes from the graph, and invalidate what depends on them, until Ctrl-C."""
    from refresher.embedded.interrupts import Interrupts
    from refresher.feed.consumer import Consumer
    from refresher.feed.outbox import Outbox
    from refresher.worker.redis_link import RetryingLink

    stopped = threading.Event()
    with (
        Interrupts.handled(signal.SIGINT, signal.SIGTERM),
        _triggers() as (triggers, settings),
        closing(RetryingLink(settings.redis_url)) as link,
    ):
        watches = triggers.checked(_watches())
        typer.echo(f"watching {_shown(watches)}; Ctrl-C ends it")
        outbox = Outbox(triggers.driver, triggers.database, watches)
        consumer = Consumer(outbox, link.store, settings, on_invalidated=_report)
        try:
            consumer.run(stopped)
        except KeyboardInterrupt:
            consumer.close()


@feed.command()
def status(as_json_: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """Show what is watched, and what is not taken yet; exits with 1 where the trigger is not as it should be."""
    with _triggers() as (triggers, _):
        wanted, found, backlog = _watches(), triggers.installed(), triggers.backlog()
    is_good = found is not None and found.is_current and not found.is_paused and found.watches == wanted
    if as_json_:
        typer.echo(as_json({
            "ok": is_good,
            "installed": found is not None,
            "watches": None if found is None else {
                "nodes": found.watches.nodes, "relationships": sorted(found.watches.relationships)
            },
            **asdict(backlog),
        }))  # fmt: skip
    else:
        typer.echo(f"trigger  {'not installed' if found is None else _shown(found.watches)}")
        if not is_good:
            typer.echo(f"wanted   {_shown(wanted)}: refresher feed install")
        age = f", the oldest of {duration(backlog.oldest_seconds)} ago" if backlog.notes else ""
        typer.echo(f"waiting  {backlog.notes:,} transactions{age}")
    raise typer.Exit(0 if is_good else 1)


@feed.command()
def uninstall() -> None:
    """Remove the trigger, and the changes that nobody has taken."""
    with _triggers() as (triggers, _):
        count = triggers.uninstall()
    typer.echo(f"removed, with {count:,} changes that were not taken")


@contextmanager
def _triggers() -> Iterator[tuple[Triggers, WorkerSettings]]:
    from refresher.feed.settings import FeedSettings
    from refresher.feed.triggers import Triggers
    from refresher.graph.driver import open_driver

    settings, who = WorkerSettings.from_env(), FeedSettings.from_env()
    user, password = (who.user, who.password) if who.user else (settings.neo4j_user, settings.neo4j_password)
    with closing(open_driver(settings, user, password)) as driver:
        yield Triggers(driver, settings.neo4j_database or None), settings


def _watches() -> Watches:
    from refresher.feed.watches import watches
    from refresher.queries import import_queries

    import_queries(WorkerSettings.from_env().query_modules)
    return watches


def _shown(watches: Watches) -> str:
    nodes = [f"{label} by {key}" for label, key in sorted(watches.nodes.items())]
    return ", ".join([*nodes, *sorted(watches.relationships)]) or "nothing"


def _report(changes: Changes, entries: int) -> None:
    oldest_seconds = time.time() - min(changes.committed_at, default=time.time())
    typer.echo(
        f"{len(changes.positions):,} transactions, {len(changes.tags):,} tags, {entries:,} entries invalidated, "
        f"{duration(max(0.0, oldest_seconds))} after the first"
    )
