"""The processes of deploy/: compose.yaml's services with their health checks; the units, confined as configured."""

from __future__ import annotations

import functools
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from refresher.embedded import GuardedProcess, free_port
from tests.acceptance.conftest import ROOT, System
from tests.support.confined import directives
from tests.support.deployment_files import DEPLOY, copy_with_secrets, environment
from tests.support.graph_session import graph_session
from tests.support.http_requests import fetch
from tests.support.running_deployment import RunningDeployment, can_mount, confined, scraped_here
from tests.support.scripted_queries import CONTROL_URL
from tests.support.tools import tool
from tests.support.waiting import MAX_WAIT_SECONDS, eventually
from tests.support.web_server import WebServer

pytestmark = pytest.mark.timeout(8 * MAX_WAIT_SECONDS)

PERSON = 42
# The test sets which servers a unit's process uses.
SERVERS = (
    "CACHE_REDIS_URL", "CACHE_BROKER_URL", "NEO4J_URI", "NEO4J_USER", "NEO4J_PASSWORD", "NEO4J_DATABASE",
    "REFRESHER_QUERIES", CONTROL_URL,
)  # fmt: skip


@pytest.fixture(scope="module")
def deployed(arcadedb: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDeployment]:
    """All but Neo4j, for which the embedded graph stands in, and Grafana."""
    for name in ("prometheus", "redis-cli", "wget"):
        tool(name)
    graph = {
        "NEO4J_URI": arcadedb.bolt_uri, "NEO4J_USER": arcadedb.user, "NEO4J_PASSWORD": arcadedb.password,
        "NEO4J_DATABASE": arcadedb.database,
    }  # fmt: skip
    with ExitStack() as stack:
        session = stack.enter_context(graph_session(arcadedb))
        session.run("CREATE (:Person {id: $id})-[:KNOWS]->(:Person {id: 1, name: 'Ada'})", id=PERSON).consume()
        stack.callback(lambda: session.run("MATCH (p:Person) DETACH DELETE p").consume())
        running = RunningDeployment(stack, tmp_path_factory.mktemp("deployed"), graph)
        scraped_here(running)
        running.start("redis-cache", "redis-broker")
        running.start("worker", "flower", "application", "prometheus")
        yield running


@pytest.fixture
def application(deployed: RunningDeployment) -> Iterator[WebServer]:
    server = WebServer(deployed.processes["application"], deployed.ports["application"])
    yield server
    server.http.close()


def counted(server: WebServer, metric: str) -> int:
    """Return a counter of the example's query from /metrics."""
    text = server.http.get("/metrics").text
    [value] = re.findall(rf'^{metric}{{query="friends_of"}} (\S+)$', text, re.MULTILINE) or ["0"]
    return int(float(value))


def test_each_process_of_the_application_serves_the_metrics_of_all(application: WebServer) -> None:
    path = f"/people/{PERSON}/friends"
    eventually(lambda: application.http.get(path).status_code == http.client.OK, "it is loaded")
    assert application.friends(PERSON) == ["Ada"]
    eventually(lambda: counted(application, "cache_miss_total"), "the miss is counted")
    children = application.children()
    assert len(children) == 2
    for child in sorted(children):
        with application.only(child):
            for _ in range(10):
                application.friends(PERSON)
    # Each process writes down what it has counted every half second: one that is stopped does not.
    eventually(lambda: counted(application, "cache_hit_total") >= 20, "all is written down")
    for child in sorted(children):
        with application.only(child):
            assert counted(application, "cache_hit_total") >= 20


def test_prometheus_scrapes_worker_flower_and_application(deployed: RunningDeployment) -> None:
    def up() -> list[str]:
        answer = fetch(deployed.ports["prometheus"], "/api/v1/query?query=up")[1]
        return sorted(re.findall(rb'"job":"([a-z-]+)"[^]]*"value":\[[\d.]+,"1"', answer))

    eventually(lambda: up() == [b"application", b"refresher-flower", b"refresher-workers"], "all are up")


def test_redis_and_flower_deny_access_without_a_password(deployed: RunningDeployment) -> None:
    for server in ("redis-cache", "redis-broker"):
        stranger = redis.Redis(port=deployed.ports[server], retry=Retry(NoBackoff(), 0))
        with stranger, pytest.raises(redis.AuthenticationError):
            stranger.get("x")
    assert fetch(deployed.ports["flower"], "/workers")[0] == http.client.UNAUTHORIZED


def test_our_processes_have_no_privileges(deployed: RunningDeployment) -> None:
    for name in ("worker", "flower", "application"):
        for process in (own := psutil.Process(deployed.processes[name].pid), *own.children(recursive=True)):
            status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
            assert "NoNewPrivs:\t1\n" in status
            assert os.geteuid() != 0 or re.search(r"^CapEff:\t0+$", status, re.MULTILINE), name


def test_a_confined_program_can_write_to_its_own_folder_alone(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "tmp" / "inside"
    words = confined(inside.parent)
    for path, written in ((outside, not can_mount()), (inside, True)):
        done = subprocess.run([*words, "/bin/sh", "-c", f"echo > '{path}'"], capture_output=True, check=False)
        assert (done.returncode == 0) == written


@pytest.mark.last  # it ends the services that the others share
def test_each_health_check_fails_once_its_service_is_killed(deployed: RunningDeployment) -> None:
    # In the order of their dependencies: a service whose check probes other servers is killed before these.
    for name in ("worker", "application", "flower", "prometheus", "redis-cache"):
        eventually(functools.partial(deployed.is_healthy, name), f"{name} is healthy")
        deployed.processes[name].kill()
        assert not deployed.is_healthy(name)


class Unit:
    """What a unit of systemd starts, in a process that is confined as the unit says."""

    def __init__(self, system: System, stack: ExitStack, folder: Path, name: str, **changes: str) -> None:
        tool("systemd-analyze")
        unit = DEPLOY / f"refresher-{name}.service"
        deploy = copy_with_secrets(folder, "here")
        [start] = directives(unit, "ExecStart")
        [said] = directives(unit, "Environment")
        words = start.replace("%H", socket.gethostname()).replace("/etc/refresher/", f"{deploy}/").split()
        env = environment(deploy / "secrets" / f"{name}.env") | dict(word.split("=", 1) for word in said.split())
        env |= {key: value for key, value in system.env.items() if key in SERVERS}
        program = str(Path(sys.executable).with_name(Path(words[0]).name))
        env |= {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **changes}
        command = [*confined(folder / "tmp", "--unit", str(unit)), program, *words[1:]]
        [home] = directives(unit, "WorkingDirectory")
        self.process = GuardedProcess.start(command, env=env, cwd=Path(home), log_file=folder / "unit.log")
        stack.callback(self.process.kill)
        [self.stop_seconds] = map(float, directives(unit, "TimeoutStopSec"))

    def is_filtered(self) -> bool:
        return "Seccomp:\t2\n" in Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")

    def request_stop(self) -> None:
        """Send SIGTERM to the main process only, as KillMode=mixed does."""
        os.kill(self.process.pid, signal.SIGTERM)

    def ended(self) -> int | None:
        """Its exit code, when it has ended within the time that systemd gives it."""
        return self.process.wait(self.stop_seconds)


def test_the_confined_worker_unit_refreshes_and_stops_gracefully(
    system: System, stack: ExitStack, tmp_path: Path
) -> None:
    port = free_port()
    ports = {"CACHE_HEALTH_PORT": str(port), "CACHE_METRICS_PORT": str(free_port())}
    unit = Unit(system, stack, tmp_path, "worker", **ports)
    eventually(lambda: fetch(port, "/ready")[0] == http.client.OK, f"it is ready: {unit.process.tail_of_log()}")
    assert unit.is_filtered()
    client = system.client()
    assert client.get("long_lived", {"key": "a"})["load"] == 1
    client.refresh("long_lived", {"key": "b", "hold": "gate"})
    eventually(lambda: system.loads("b") == 1, "it loads")
    unit.request_stop()
    eventually(lambda: b"stopping" in fetch(port, "/ready")[1], "it stops")
    system.open_gate("gate")
    assert unit.ended() == 0
    assert client.get("long_lived", {"key": "b", "hold": "gate"})["load"] == 1


def test_the_confined_flower_unit_requires_a_password(system: System, stack: ExitStack, tmp_path: Path) -> None:
    port = free_port()
    unit = Unit(system, stack, tmp_path, "flower", FLOWER_PORT=str(port))
    eventually(lambda: fetch(port, "/healthcheck")[0] == http.client.OK, "it answers")
    assert unit.is_filtered()
    assert fetch(port, "/workers")[0] == http.client.UNAUTHORIZED
    unit.request_stop()
    assert unit.ended() == 0
