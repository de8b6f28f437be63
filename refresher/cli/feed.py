"""``refresher feed``: the graph's change feed."""

from __future__ import annotations

import signal
import threading
from contextlib import closing, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import typer

from api_client.explain import duration
from api_client.protocol.keys import feed_state_key
from refresher.cli.arguments import Json, opened_cache
from refresher.cli.output import as_json, counted
from refresher.settings import WorkerSettings

if TYPE_CHECKING:
    from refresher.feed.consumer import Invalidated
    from refresher.feed.watches import Watches

feed: Final = typer.Typer(
    help="Invalidate what depends on each change of the graph, whoever wrote it.", no_args_is_help=True
)


@feed.command()
def install() -> None:
    """Install the trigger that notes each change of what is watched: by APOC. A database with CDC needs none."""
    from refresher.feed.cdc import is_source
    from refresher.feed.run import opened_triggers

    settings, watches = _settings_and_watches()
    with opened_triggers(settings) as triggers:
        has_cdc = is_source(triggers, watches)
        if not has_cdc:
            triggers.install(watches)
    done = "nothing to install, the database captures changes itself (CDC)" if has_cdc else "installed"
    typer.echo(f"{done}: {_shown(watches)}")
    typer.echo("next: workers with CACHE_FEED=true, or refresher feed run; of several one works, the others wait")


@feed.command()
def run() -> None:
    """Take changes from the graph, and invalidate what depends on them, until Ctrl-C."""
    from refresher.embedded.interrupts import Interrupts
    from refresher.feed.run import consume, opened_triggers
    from refresher.worker.redis_link import RetryingLink

    settings, wanted = _settings_and_watches()
    with (
        suppress(KeyboardInterrupt),
        Interrupts.handled(signal.SIGINT, signal.SIGTERM),
        opened_triggers(settings) as triggers,
        closing(RetryingLink(settings.redis_url)) as link,
    ):
        typer.echo(f"watching {_shown(wanted)}; Ctrl-C ends it")
        consume(triggers, link.store, settings, threading.Event(), on_invalidated=_report)


@feed.command()
def status(as_json_: Json = False) -> None:
    """Show what is watched, and what is not taken yet; exits with 1 where the trigger is not as it should be."""
    from refresher.feed.cdc import is_source
    from refresher.feed.run import opened_triggers
    from refresher.feed.triggers import runs

    settings, wanted = _settings_and_watches()
    with opened_triggers(settings) as triggers:
        has_cdc = is_source(triggers, wanted)
        found, backlog = None if has_cdc else triggers.installed(), triggers.backlog()
    is_good = has_cdc or runs(found, wanted)
    if as_json_:
        typer.echo(as_json({
            "ok": is_good,
            "installed": found is not None,
            "cdc": has_cdc,
            "watches": None if found is None else {
                "nodes": found.watches.nodes, "relationships": sorted(found.watches.relationships)
            },
            **asdict(backlog),
        }))  # fmt: skip
    elif has_cdc:
        typer.echo(f"CDC      {_shown(wanted)}")
    else:
        typer.echo(f"trigger  {'not installed' if found is None else _shown(found.watches)}")
        if not is_good:
            typer.echo(f"wanted   {_shown(wanted)}: refresher feed install")
        age = f", the oldest of {duration(backlog.oldest_seconds)} ago" if backlog.notes else ""
        typer.echo(f"waiting  {counted(backlog.notes, 'transaction')}{age}")
    raise typer.Exit(0 if is_good else 1)


@feed.command()
def uninstall() -> None:
    """Remove the trigger, and the changes that nobody has taken."""
    from refresher.feed.run import opened_triggers

    settings = WorkerSettings.from_env()
    with opened_triggers(settings) as triggers:
        count = triggers.uninstall()
    typer.echo(f"removed, with the changes of {counted(count, 'transaction')} that were not taken")
    with opened_cache(settings.redis_url) as client:
        client.delete(feed_state_key(settings.namespace))  # from now on nobody needs to consume


def _settings_and_watches() -> tuple[WorkerSettings, Watches]:
    from refresher.feed.watches import watches
    from refresher.query_modules import import_queries

    settings = WorkerSettings.from_env()
    import_queries(settings.query_modules)
    return settings, watches


def _shown(watches: Watches) -> str:
    nodes = [f"{label} by {key}" for label, key in sorted(watches.nodes.items())]
    return ", ".join([*nodes, *sorted(watches.relationships)]) or "nothing"


def _report(done: Invalidated) -> None:
    typer.echo(
        f"{counted(len(done.changes.positions), 'transaction')}, {counted(len(done.changes.tags), 'tag')}, "
        f"{counted(done.by_query.total(), 'entry', 'entries')} invalidated, "
        f"{duration(max(done.staleness_seconds, default=0.0))} after the first"
    )
