"""The application behind HTTP, for WSGI and ASGI servers: ``/use`` and ``/close``."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Final

from tests.acceptance.hosts.application import Application
from tests.acceptance.hosts.table import USED_BEFORE_FORK
from tests.support.waiting import eventually

LOOK_SECONDS: Final = 0.05


def other_threads_are_idle() -> bool:
    """Return whether no other thread has run, or was ready to, while this one slept."""

    def seen() -> dict[int, tuple[str, ...]]:
        others = [one.native_id for one in threading.enumerate() if one is not threading.current_thread()]
        lines = {each: Path(f"/proc/self/task/{each}/status").read_text().splitlines() for each in others if each}
        return {each: tuple(line for line in lines[each] if line.startswith(_SCHEDULING)) for each in lines}

    before = seen()
    time.sleep(LOOK_SECONDS)
    after = seen()
    return before == after and all(lines[0].startswith("State:\tS") for lines in after.values())


_SCHEDULING: Final = ("State:", "voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:")

host = Application()
if USED_BEFORE_FORK in os.environ:
    host.use()
    # A process that is forked while another thread has the interpreter's lock never gets it: uWSGI resets nothing.
    host.flush()
    eventually(other_threads_are_idle, "the client's threads are idle")


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
