"""A worker's health over HTTP: ``/live`` and ``/ready``, 200 or 503, with the faults as JSON. Nothing else."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from refresher.ops.health import Health, Verdict
from refresher.ops.heartbeat import Heartbeat, Phase
from refresher.ops.http import MinimalHTTPHandler, MinimalHTTPServer
from refresher.settings import WorkerSettings

log: Final = logging.getLogger(__name__)

REQUEST_SECONDS: Final = 5.0


class HealthServer:
    """Serves a worker's health from its main process; does nothing before `start` or without a port.

    Args:
        settings: the worker's settings, with the address and port.
        heartbeat: the heartbeat of the worker's loop.
        health: the health to serve; closed together with this.
    """

    def __init__(self, settings: WorkerSettings, heartbeat: Heartbeat, health: Health) -> None:
        self._settings, self._heartbeat, self._health = settings, heartbeat, health
        self._server: MinimalHTTPServer | None = None

    def start(self) -> None:
        """Start serving. A failure is logged, since a worker can refresh without its health port."""
        self._heartbeat.beat()
        if not self._settings.health_port:
            return
        address, port = self._settings.health_address, self._settings.health_port
        try:
            self._server = _server(address, port, {"/live": self._health.live, "/ready": self._health.ready})
        except OSError as error:
            log.error("no health at %s:%s: %s", address, port, error)
            return
        threading.Thread(target=self._server.serve_forever, name="health", daemon=True).start()
        log.info("health: http://%s:%s/ready and /live", address, port)

    def after_fork(self) -> None:
        """Close the port in a pool process, since it belongs to the main process."""
        if self._server is not None:
            self._server.socket.close()
            self._server = None

    def stopping(self) -> None:
        """Report from now on that no more messages are consumed."""
        self._heartbeat.enter(Phase.STOPPING, can_beat=False)

    def close(self) -> None:
        """Stop serving."""
        if self._server is not None:
            server, self._server = self._server, None
            server.shutdown()
            server.server_close()
        self._health.close()


def _server(address: str, port: int, verdicts: dict[str, Callable[[], Verdict]]) -> MinimalHTTPServer:
    class Handler(MinimalHTTPHandler):
        timeout = REQUEST_SECONDS

        def do_GET(self) -> None:  # noqa: N802 - the name that http.server looks for
            check = verdicts.get(self.path.partition("?")[0])
            if check is None:
                self._answer(HTTPStatus.NOT_FOUND, {"error": f"expected one of: {', '.join(verdicts)}"})
                return
            verdict = check()
            self._answer(HTTPStatus.OK if verdict.is_good else HTTPStatus.SERVICE_UNAVAILABLE, verdict.record())

        do_HEAD = do_GET  # noqa: N815

        def _answer(self, status: HTTPStatus, record: dict[str, Any]) -> None:
            self.send(status, json.dumps(record).encode() + b"\n", "application/json", {})

    return MinimalHTTPServer((address, port), Handler)
