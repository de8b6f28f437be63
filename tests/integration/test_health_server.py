"""The health server of a worker, and the `health` command, without a worker."""

from __future__ import annotations

import http.client
import json
import logging
import threading
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from refresher.cli.commands import app
from refresher.embedded import free_port
from refresher.ops.health import Health
from refresher.ops.health_server import HealthServer
from refresher.ops.heartbeat import Heartbeat, Phase
from refresher.ops.http import MinimalHTTPHandler, MinimalHTTPServer
from refresher.settings import WorkerSettings
from tests.support.http_requests import fetch
from tests.support.timing import Time


@pytest.fixture
def settings() -> WorkerSettings:
    """Settings of a worker that can reach no server."""
    nobody = f"127.0.0.1:{free_port()}"
    return WorkerSettings(
        health_port=free_port(), redis_url=f"redis://{nobody}/0", broker_url=f"redis://{nobody}/1",
        neo4j_uri=f"bolt://{nobody}",
    )  # fmt: skip


@pytest.fixture
def heartbeat(settings: WorkerSettings) -> Iterator[Heartbeat]:
    """The heartbeat of a worker that serves its health."""
    heartbeat = Heartbeat(Time())
    server = HealthServer(settings, heartbeat, Health(settings, heartbeat))
    server.start()
    yield heartbeat
    server.close()


def test_only_known_paths_and_methods_are_answered(settings: WorkerSettings, heartbeat: Heartbeat) -> None:
    assert fetch(settings.health_port, "/live?x=1") == (http.client.OK, b'{"ok": true, "checks": {"consumer": "ok"}}\n')
    assert fetch(settings.health_port, "/live", method="HEAD") == (http.client.OK, b"")
    for path in ("/", "/metrics", "/live/x"):
        assert fetch(settings.health_port, path)[0] == http.client.NOT_FOUND
    assert fetch(settings.health_port, "/live", method="POST")[0] == http.client.NOT_IMPLEMENTED


def test_a_taken_health_port_is_logged_and_the_worker_goes_on(
    settings: WorkerSettings, heartbeat: Heartbeat, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        second = HealthServer(settings, Heartbeat(), Health(settings, Heartbeat()))
        second.start()
        second.stopping()
        second.close()
    assert f"no health at 127.0.0.1:{settings.health_port}: " in caplog.text
    assert fetch(settings.health_port, "/live")[0] == http.client.OK


def test_a_stopping_worker_reports_it(settings: WorkerSettings, heartbeat: Heartbeat) -> None:
    heartbeat.enter(Phase.STOPPING, can_beat=False)
    status, body = fetch(settings.health_port, "/ready")
    assert status == http.client.SERVICE_UNAVAILABLE
    assert json.loads(body)["checks"]["consumer"] == "consumes no messages: stopping"


def run_health_command(*options: str, port: int) -> tuple[int, str]:
    done = CliRunner().invoke(
        app,
        ["health", *options],
        env={"CACHE_HEALTH_PORT": str(port), "CACHE_HEALTH_ADDRESS": "0.0.0.0"},  # noqa: S104
    )
    return done.exit_code, done.stdout


def test_the_health_command_queries_the_loopback_address(settings: WorkerSettings, heartbeat: Heartbeat) -> None:
    assert run_health_command("--live", port=settings.health_port) == (0, "consumer  ok\n")


def test_an_unreachable_health_port_is_unhealthy() -> None:
    exit_code, said = run_health_command("--live", port=free_port())
    assert (exit_code, said.startswith("worker    does not answer at 127.0.0.1:")) == (1, True)


def test_an_unknown_server_at_the_health_port_is_unhealthy() -> None:
    class Other(MinimalHTTPHandler):
        def do_GET(self) -> None:  # noqa: N802 - the name that http.server looks for
            self.send_response(http.client.OK)
            self.end_headers()
            self.wfile.write(b"[]")

    server = MinimalHTTPServer(("127.0.0.1", 0), Other)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        exit_code, said = run_health_command("--json", port=server.server_port)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert exit_code == 1
    assert "what listens there is not a worker's health endpoint" in json.loads(said)["checks"]["worker"]
