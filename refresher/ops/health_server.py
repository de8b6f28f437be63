"""A worker's health over HTTP: ``/live`` and ``/ready``, 200 or 503, with what is wrong as JSON. Nothing else."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from refresher.ops.health import Health, Heartbeat, Phase, Verdict
from refresher.ops.http import QuietHandler, QuietServer
from refresher.settings import WorkerSettings

log: Final = logging.getLogger(__name__)

REQUEST_SECONDS: Final = 5.0


class HealthServer:
    """Serves from a worker's main process; nothing before `start`, or without a port.

    Args:
        settings: whose address and port.
        pulse: of the worker's loop.
        health: what is told; it is closed with this.
    """

    def __init__(self, settings: WorkerSettings, pulse: Heartbeat, health: Health) -> None:
        self._settings, self._pulse, self._health = settings, pulse, health
        self._server: QuietServer | None = None
        self._pid = os.getpid()

    def start(self) -> None:
        """Begin to serve. What keeps it from that is logged; a worker that nobody can ask still refreshes."""
        self._pulse.beat()
        if not self._settings.health_port:
            return
        address, port = self._settings.health_address, self._settings.health_port
        try:
            server = _server(address, port, {"/live": self._health.live, "/ready": self._health.ready})
        except OSError as error:
            log.error("no health at %s:%s: %s", address, port, error)
            return
        self._pid, self._server = os.getpid(), server
        threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
        log.info("health: http://%s:%s/ready and /live", address, port)

    def after_fork(self) -> None:
        """In a process of the pool: let go of the port, which is the main process's."""
        if self._server is not None and self._pid != os.getpid():
            self._server.socket.close()
            self._server = None

    def stopping(self) -> None:
        """Tell from now on that no more messages are taken."""
        self._pulse.enter(Phase.STOPPING, is_heard=False)

    def close(self) -> None:
        """Stop serving."""
        if self._server is not None:
            server, self._server = self._server, None
            server.shutdown()
            server.server_close()
        self._health.close()


def _server(address: str, port: int, verdicts: dict[str, Callable[[], Verdict]]) -> QuietServer:
    class Handler(QuietHandler):
        timeout = REQUEST_SECONDS

        def do_GET(self) -> None:  # noqa: N802 - the name that http.server looks for
            look = verdicts.get(self.path.partition("?")[0])
            if look is None:
                self._answer(HTTPStatus.NOT_FOUND, {"error": f"allowed is one of: {', '.join(verdicts)}"})
                return
            verdict = look()
            self._answer(HTTPStatus.OK if verdict.is_good else HTTPStatus.SERVICE_UNAVAILABLE, verdict.record())

        do_HEAD = do_GET  # noqa: N815

        def _answer(self, status: HTTPStatus, record: dict[str, Any]) -> None:
            body = json.dumps(record).encode() + b"\n"
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    return QuietServer((address, port), Handler)
