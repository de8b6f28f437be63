"""``refresher refresh``."""

from __future__ import annotations

from typing import Annotated

import typer

from api_client.client import CacheClient
from api_client.config.settings import ReaderSettings
from api_client.protocol.model import RefreshState
from refresher.cli.arguments import ParamList, QueryName, Version, duration_of, key_of
from refresher.cli.output import as_json

_WORDS = {
    RefreshState.TRIGGERED: "triggered",
    RefreshState.SUPPRESSED: "already in progress",
}


def refresh(
    query: QueryName,
    params: ParamList = None,
    version: Version = 1,
    wait: Annotated[
        str, typer.Option(metavar="DURATION", help="How long to wait for the new value; 0: not at all.")
    ] = "30s",
    as_json_: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False,
) -> None:
    """Load a value now, even if it is fresh or has just failed, and wait for it.

    Exits with 1 when the wait timed out, or the refresh failed; the error says which.
    """
    wait_seconds = duration_of(wait, "--wait")
    settings = ReaderSettings.from_env()
    key = key_of(settings, query, params, version)
    with CacheClient(settings) as client:
        state = client.refresh(query, key.params, version=version, wait=wait_seconds > 0, timeout=wait_seconds or None)
    if as_json_:
        typer.echo(as_json({"query": query, "version": version, "refresh": state.value, "waited": wait_seconds > 0}))
    else:
        typer.echo(f"{query} v{version}: {'refreshed' if wait_seconds else _WORDS.get(state, state.value)}")
