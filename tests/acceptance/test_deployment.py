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
from refresher.embedded.redis_server import bundled_valkey_server
from tests.acceptance.conftest import System
from tests.support.confined import directives
from tests.support.deployment_files import DEPLOY, ROOT, compose, copy_with_secrets, environment, image
from tests.support.graph_session import graph_session
from tests.support.http_requests import fetch
from tests.support.requirements import tool
from tests.support.scripted_queries import CONTROL_URL
from tests.support.waiting import MAX_WAIT_SECONDS, eventually
from tests.support.web_server import WebServer

CONFINED = ROOT / "tests" / "support" / "confined.py"
STAGES = {"worker": "worker", "flower": "worker", "application": "application"}
OWN_PORT = {"redis-cache": 6379, "redis-broker": 6379, "flower": 5555, "application": 8000, "prometheus": 9090}
WORKER_PORTS = ("CACHE_METRICS_PORT", "CACHE_HEALTH_PORT")
ENTRYPOINT = {"prometheus": ["prometheus"]}
# Programs that listen on their usual port by default, and so have no option for it.
TOLD_OF_PORT = {
    "redis-cache": "--port {}",
    "redis-broker": "--port {}",
    "prometheus": "--web.listen-address=127.0.0.1:{}",
}
pytestmark = pytest.mark.timeout(8 * MAX_WAIT_SECONDS)
PERSON = 42
# The test sets which servers a unit's process uses.
SERVERS = (
    "CACHE_REDIS_URL", "CACHE_BROKER_URL", "NEO4J_URI", "NEO4J_USER", "NEO4J_PASSWORD", "NEO4J_DATABASE",
    "REFRESHER_QUERIES", CONTROL_URL,
)  # fmt: skip


@functools.cache
def can_mount() -> bool:
    """Return whether this user may mount file systems of its own: root may, unless a container forbids it."""
    return os.geteuid() == 0 and not subprocess.run(["unshare", "--mount", "true"], check=False).returncode  # noqa: S607


def confined(folder: Path, *options: str) -> list[str]:
    """Return the prefix of a command that confines its program, as far as possible; ``folder`` is its TMPDIR."""
    folder.mkdir(exist_ok=True)
    return [sys.executable, "-I", str(CONFINED), *options, *(("--writable", str(folder)) if can_mount() else ())]


class RunningDeployment:
    """A deployment that is started service by service; all of it ends with ``stack``."""

    def __init__(self, stack: ExitStack, folder: Path, graph: dict[str, str]) -> None:
        self._stack, self._folder, self._graph = stack, folder, graph
        self.deploy = copy_with_secrets(folder)
        self.services = compose()["services"]
        self.ports = {name: free_port() for name in (*OWN_PORT, *WORKER_PORTS)}
        self.processes: dict[str, GuardedProcess] = {}

    def start(self, *names: str) -> None:
        """Start services, and wait until the health check of each succeeds."""
        for name in names:
            command = self._words(name, self.services[name].get("command") or image(STAGES[name])["CMD"])
            command = [
                *ENTRYPOINT.get(name, []),
                *command,
                *TOLD_OF_PORT.get(name, "").format(self.ports.get(name)).split(),
            ]
            if self.services[name].get("build"):
                command = [*confined(self._folder / f"{name}-tmp"), *command]
            self.processes[name] = GuardedProcess.start(
                command, env=self.environment(name), cwd=self._home(name), log_file=self._folder / f"{name}.log"
            )
            self._stack.callback(self.processes[name].kill)
        for name in names:
            eventually(functools.partial(self._is_healthy_or_over, name), f"{name} is healthy")
            assert self.processes[name].poll() is None, self.processes[name].tail_of_log()

    def _is_healthy_or_over(self, name: str) -> bool:
        process = self.processes[name]
        # A check of the worker takes a second of the processor: none before it can succeed.
        too_early = name == "worker" and "ready." not in process.tail_of_log(10_000)
        return process.poll() is not None or (not too_early and self.is_healthy(name))

    def is_healthy(self, name: str) -> bool:
        """Run the service's health check as the container's engine would; return its result."""
        kind, *test = self.services[name]["healthcheck"]["test"]
        words = ["/bin/sh", "-c", *self._words(name, test)] if kind == "CMD-SHELL" else self._words(name, test)
        return not subprocess.run(words, env=self.environment(name), capture_output=True, check=False).returncode

    def environment(self, name: str) -> dict[str, str]:
        """Return the service's environment."""
        service = self.services[name]
        said = environment(*(self.deploy / file for file in service.get("env_file", [])))
        said |= {key: str(value) for key, value in service.get("environment", {}).items()}
        if name == "worker":
            said |= {**self._graph, **{port: str(self.ports[port]) for port in WORKER_PORTS}}
        if name == "flower":
            said["FLOWER_PORT"] = str(self.ports[name])
        if name == "application":
            said["BIND"] = f"127.0.0.1:{self.ports[name]}"
            said["CACHE_REDIS_TIMEOUT"] = "20s"  # a busy machine may need more than the default
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        said |= {"PATH": path, "PYTHONPATH": f"/queries{os.pathsep}{ROOT}", "HOME": "/nonexistent"}
        return {key: self._here(name, value) for key, value in said.items()}

    def _home(self, name: str) -> Path:
        return self.deploy / ("example-app" if name == "application" else "queries")

    def _words(self, name: str, words: list[str]) -> list[str]:
        port = str(OWN_PORT.get(name, ""))
        swapped = [re.sub(rf"\b{port}\b", str(self.ports[name]), word) if port else word for word in words]
        valkey = {"valkey-server": str(bundled_valkey_server())}
        command = [word.replace("valkey-cli ", f"redis-cli -p {self.ports.get(name)} ") for word in swapped]
        return [self._here(name, valkey.get(word, word)) for word in command]

    def _here(self, name: str, text: str) -> str:
        """Return a word or value in the form that it needs without containers."""
        for server in ("redis-cache", "redis-broker"):
            text = text.replace(f"{server}:6379", f"127.0.0.1:{self.ports[server]}")
        text = text.replace("0.0.0.0", "127.0.0.1")  # noqa: S104 - away with it
        for inside, path in self._places(name):
            text = re.sub(rf"(?<![\w/.]){re.escape(inside)}(?![\w-])", str(path), text)
        return text

    def _places(self, name: str) -> list[tuple[str, Path]]:
        """Return the places of mounted, copied and secret files on this machine, the longest path first."""
        service: dict[str, Any] = self.services[name]
        places = {"/deploy": self.deploy, "/queries": self.deploy / "queries"}
        secrets: dict[str, dict[str, str]] = compose()["secrets"]
        for secret in service.get("secrets", []):
            places[f"/run/secrets/{secret}"] = self.deploy / secrets[secret]["file"]
        for mounted in service.get("volumes", []):
            source, inside = mounted.split(":")[:2]
            places[inside] = self.deploy / source if source.startswith("./") else self._volume(source)
        return sorted(places.items(), key=lambda place: -len(place[0]))

    def _volume(self, name: str) -> Path:
        folder = self._folder / f"volume-{name}"
        folder.mkdir(exist_ok=True)
        return folder


def scraped_here(deployment: RunningDeployment) -> None:
    """Let Prometheus find its targets on this machine, without a name server, and scrape more often."""
    file = deployment.deploy / "prometheus" / "prometheus.compose.yml"
    text = file.read_text(encoding="utf-8").replace("10s", "3s").replace("8s", "3s")
    text = text.replace("flower:5555", f"127.0.0.1:{deployment.ports['flower']}")
    for service, port in (("worker", "CACHE_METRICS_PORT"), ("application", "application")):
        here = f'static_configs: [{{targets: ["127.0.0.1:{deployment.ports[port]}"]}}]'
        text = re.sub(rf"dns_sd_configs: \[{{names: \[{service}\].*\]", here, text)
    file.write_text(text, encoding="utf-8")


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
