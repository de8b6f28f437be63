"""``refresher health``."""

from __future__ import annotations

import http.client
from typing import Annotated

import typer

from refresher.cli.arguments import Json
from refresher.cli.output import as_json, fail, plain
from refresher.ops.http import fetch_health, nearby
from refresher.settings import WorkerSettings


def health(
    ready: Annotated[bool, typer.Option("--ready/--live", help="Which of the two to check.")] = True,
    as_json_: Json = False,
) -> None:
    """Query whether the worker of this host is ready, or live, at CACHE_HEALTH_PORT.

    Exits with 1 when it is not, or does not answer.
    """
    settings = WorkerSettings.from_env()
    if not settings.health_port:
        fail("CACHE_HEALTH_PORT is not set: set it to the worker's")
    try:
        path = "/ready" if ready else "/live"
        is_good, record = fetch_health(settings.health_address, settings.health_port, path)
    except (OSError, http.client.HTTPException, ValueError) as error:
        where = f"{nearby(settings.health_address)}:{settings.health_port}"
        is_good, record = False, {"ok": False, "checks": {"worker": f"does not answer at {where}: {error}"}}
    if as_json_:
        typer.echo(as_json(record))
    else:
        for name, result in record["checks"].items():
            typer.echo(f"{name:<10}{plain(str(result))}")
    raise typer.Exit(0 if is_good else 1)
