"""``refresher explain``."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated, Final

import typer

from api_client.config.settings import ReaderSettings
from api_client.explain import Explanation, details_of, reason_of
from api_client.protocol.model import EntryState
from refresher.cli.arguments import ParamList, QueryName, Version, key_of, opened_cache
from refresher.cli.output import as_json, details_grid, wide_console
from refresher.cli.permissions import permissions_named
from refresher.ops.broker import Queues, queue_lengths
from refresher.ops.inspect import explain_keys, registered_versions
from refresher.ops.permissions import Permissions

NAME_COLUMNS: Final = 10

_COLOURS = {EntryState.FRESH: "green", EntryState.STALE: "yellow", EntryState.MISS: "red"}


def explain(
    query: QueryName,
    params: ParamList = None,
    version: Version = 1,
    as_json_: Annotated[bool, typer.Option("--json", help="As one JSON object; durations in seconds.")] = False,
) -> None:
    """Show why a value is or isn't being refreshed: its time left, the probability of a refresh, and by which worker.

    Redis and broker are those of the environment (CACHE_REDIS_URL, CACHE_BROKER_URL, CACHE_NAMESPACE). A reader's last
    draw is known to its process alone: there, client.explain() shows it.

    Exits with 1 when the cache could not be queried.
    """
    settings = ReaderSettings.from_env()
    key = key_of(settings, query, params, version)
    named = permissions_named(settings, Permissions.missing_for_readers, "reader")
    with named, opened_cache(settings.redis_url) as client:
        (explained,) = explain_keys(client, [key])
        versions = registered_versions(client, settings.namespace, query)
    if queues := _queues(settings):
        explained = replace(explained, queue_length=queues.refresh, miss_queue_length=queues.miss)
    if as_json_:
        typer.echo(as_json(asdict(explained)))
    else:
        is_known = explained.state is not EntryState.MISS or key.version in versions
        _print(explained, settings.variable_of("broker_url"), is_known=is_known)


def _queues(settings: ReaderSettings) -> Queues | None:
    """Return how many refreshes are queued; None without the broker, which explains no less of the entry."""
    try:
        return queue_lengths(settings)
    except Exception:  # noqa: BLE001 - whatever a broker raises
        return None


def _print(explained: Explanation, broker_variable: str, *, is_known: bool) -> None:
    from rich.text import Text

    console = wide_console()
    console.print(
        Text.assemble(
            (f"{explained.query} v{explained.version}", "bold"), ": ",
            (reason_of(explained), _COLOURS[explained.state]),
        )
    )  # fmt: skip
    rows = details_of(explained)
    if not is_known:
        rows.append(("query", "no worker has registered it: is its name right, and does a worker run?"))
    if explained.queue_length is None:
        rows.append(("queues", f"the broker at {broker_variable} can't be queried"))
    console.print(details_grid([*rows, ("key", explained.key)], NAME_COLUMNS))
