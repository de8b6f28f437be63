"""The application behind HTTP, for WSGI and ASGI servers: ``/use`` and ``/close``."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from tests.acceptance.hosts.application import Application
from tests.acceptance.hosts.table import USED_BEFORE_FORK

host = Application()
if USED_BEFORE_FORK in os.environ:
    host.use()
    # A process that is forked while another thread has the interpreter's lock never gets it: uWSGI resets nothing.
    host.flush()


def wsgi(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer a request by what the action returns."""
    action = {"/use": host.use, "/close": host.close}.get(environ["PATH_INFO"])
    start_response("200 OK" if action else "404 Not Found", [("Content-Type", "application/json")])
    return [json.dumps(action()).encode() if action else b""]


async def asgi(scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[..., Any]) -> None:
    """Do the same on an event loop."""
    if scope["type"] == "lifespan":
        while True:
            event = (await receive())["type"]
            await send({"type": f"{event}.complete"})
            if event == "lifespan.shutdown":
                return
    action = {"/use": host.ause, "/close": host.aclose}.get(scope["path"])
    body = json.dumps(await action()).encode() if action else b""
    await send({"type": "http.response.start", "status": 200 if action else 404, "headers": []})
    await send({"type": "http.response.body", "body": body})
