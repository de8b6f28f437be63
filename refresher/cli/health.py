"""``refresher health``."""

from __future__ import annotations

import http.client
import json
from http import HTTPStatus
from typing import Annotated, Any, Final

import typer

from api_client.errors import ConfigurationError
from refresher.cli.shown import as_json, plain
from refresher.settings import WorkerSettings

TIMEOUT_SECONDS: Final = 5.0
MOST_BYTES: Final = 65_536
_ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - who listens there is asked nearby


def health(
    ready: Annotated[bool, typer.Option("--ready/--live", help="What to ask for.")] = True,
    as_json_: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False,
) -> None:
    """Ask the worker of this host whether it is ready, or live, at CACHE_HEALTH_PORT.

    Exits with 1 when it is not, or does not answer.
    """
    settings = WorkerSettings.from_env()
    if not settings.health_port:
        raise ConfigurationError("CACHE_HEALTH_PORT", "0", "it has to be the worker's")
    address = _ANYWHERE.get(settings.health_address, settings.health_address)
    try:
        is_good, record = _asked(address, settings.health_port, "/ready" if ready else "/live")
    except (OSError, http.client.HTTPException, ValueError) as error:
        where = f"{address}:{settings.health_port}"
        is_good, record = False, {"ok": False, "checks": {"worker": f"does not answer at {where}: {error}"}}
    if as_json_:
        typer.echo(as_json(record))
    else:
        for name, said in record["checks"].items():
            typer.echo(f"{name:<10}{plain(str(said))}")
    raise typer.Exit(0 if is_good else 1)


def _asked(address: str, port: int, path: str) -> tuple[bool, dict[str, Any]]:
    # Not urllib, which would ask a proxy of the environment.
    connection = http.client.HTTPConnection(address, port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        record = json.loads(answer.read(MOST_BYTES))
    finally:
        connection.close()
    if not isinstance(record, dict) or not isinstance(record.get("checks"), dict):
        raise ValueError("what listens there is no worker's health")
    return answer.status == HTTPStatus.OK, record
