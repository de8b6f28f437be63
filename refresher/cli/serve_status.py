"""``refresher status --web``."""

from __future__ import annotations

import secrets
from typing import Final

import typer

from api_client.config.settings import ReaderSettings
from refresher.ops.addresses import LOOPBACK
from refresher.ops.status import WORKERS_KEPT_SECONDS, Watcher
from refresher.web.desk import StatusApi
from refresher.web.history import History
from refresher.web.server import USER, StatusServer
from refresher.web.settings import WebSettings

DEFAULT_PORT: Final = 5556
DEFAULT_WEB_SECONDS: Final = 5.0
PASSWORD_BYTES: Final = 18


def serve(address: str, port: int, *, most_keys: int, every_seconds: float) -> None:
    """Serve the status page until Ctrl-C.

    Raises:
        typer.Exit: with 1, where the address can't be used.
    """
    settings, given = ReaderSettings.from_env(), WebSettings.from_env().password
    watcher = Watcher(settings, most_keys=most_keys, workers_kept_seconds=WORKERS_KEPT_SECONDS)
    history = History(watcher.look, every_seconds)
    password = given or secrets.token_urlsafe(PASSWORD_BYTES)
    try:
        server = StatusServer((address, port), StatusApi(settings, history), password)
    except OSError as error:
        typer.echo(f"error: the page can't be served at {address}:{port}: {error}", err=True)
        raise typer.Exit(1) from None
    shown = "of REFRESHER_STATUS_PASSWORD" if given else password
    typer.echo(f"status page: http://{address}:{server.server_port}/  user {USER}, password {shown}; Ctrl-C ends it")
    if address not in LOOPBACK:
        typer.echo(
            "warning: it is not encrypted: anyone on the way can read the password; put a TLS proxy before it", err=True
        )
    history.start()
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        return
    finally:
        history.close()
        server.server_close()
