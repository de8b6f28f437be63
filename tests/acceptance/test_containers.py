"""The files of deploy/, in containers: the images, compose.yaml as a whole, the units under systemd, the chart's pods.

Base images and servers are stand-ins of the same names (`tests/servers/container_images.py`); Grafana has none. What
compose leaves to an engine with timers and conditions is done here: health checks are run, and dependants start after
those that they depend on are healthy.
"""

from __future__ import annotations

import http.client
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import neo4j
import pytest
import yaml

from tests.servers.container_images import SERVERS, base_images
from tests.support.chart import template
from tests.support.containers import Engine
from tests.support.deployment_files import DEPLOY, ROOT, compose, copy_with_secrets, environment
from tests.support.pods import Pod
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

pytestmark = pytest.mark.timeout(25 * MAX_WAIT_SECONDS)  # two images are built

SERVICES = {name: service for name, service in compose()["services"].items() if name != "grafana"}
FIRST = ("redis-cache", "redis-broker", "neo4j")
OURS = ("worker", "flower", "application")
PERSON = 42
NETWORKS = ["refresher_cache", "refresher_broker", "refresher_graph"]
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)"


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """An engine that has the project's images, built as compose.yaml says."""
    with tempfile.TemporaryDirectory() as folder, Engine.start(Path(folder), base_images()) as engine:
        for service in ("worker", "application"):
            build = SERVICES[service]["build"]
            assert (DEPLOY / build["context"]).resolve() == ROOT
            file = f"--file={ROOT / build['dockerfile']}"
            engine.build(SERVICES[service]["image"], file, f"--target={build['target']}", str(ROOT))
        yield engine


class Compose:
    """compose.yaml, started: all but Grafana."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine, self.deploy = engine, copy_with_secrets(folder)

    def run(self, *words: str) -> str:
        """Run a command of compose."""
        done = self.engine.run(
            # Docker mounts nothing writable into a read-only root of its own accord; podman would.
            sys.executable, "-m", "podman_compose", "--in-pod=0", "--podman-run-args=--read-only-tmpfs=false",
            f"--file={self.deploy / 'compose.yaml'}", "--profile=example", *words,
        )  # fmt: skip
        return done.stdout

    def start(self, *services: str) -> None:
        self.run("up", "--detach", "--no-build", *services)
        self.engine.until_healthy(*map(name_of, services))

    def variables(self, service: str) -> dict[str, str]:
        return environment(self.deploy / "secrets" / f"{service}.env")

    def get(self, service: str, path: str, **options: Any) -> httpx.Response:
        """A page of what a service publishes on loopback."""
        [published] = SERVICES[service]["ports"]
        address, port, _ = published.split(":")
        with self.engine.network(), httpx.Client(trust_env=False, timeout=MAX_WAIT_SECONDS) as client:
            return client.get(f"http://{address}:{port}{path}", **options)

    def tasks_in_flower(self) -> list[dict[str, Any]]:
        user, password = self.variables("flower")["FLOWER_BASIC_AUTH"].split(":")
        answer = self.get("flower", "/api/tasks", auth=(user, password))
        assert answer.status_code == http.client.OK, answer.text
        return list(answer.json().values())


def name_of(service: str) -> str:
    """What compose calls the container of a service."""
    return f"refresher_{service}_1"


@pytest.fixture(scope="module")
def running(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Compose:
    started = Compose(engine, tmp_path_factory.mktemp("compose"))
    started.start(*FIRST, "prometheus")
    started.start(*OURS)
    variables = started.variables("worker")
    sign_in = (variables["NEO4J_USER"], variables["NEO4J_PASSWORD"])
    with engine.network(), neo4j.GraphDatabase.driver("bolt://127.0.0.1:7687", auth=sign_in) as driver:
        driver.execute_query("CREATE (:Person {id: $id})-[:KNOWS]->(:Person {id: 1, name: 'Ada'})", id=PERSON)
    return started


def test_a_read_is_loaded_by_the_worker_and_seen_by_flower_and_prometheus(running: Compose) -> None:
    def friends() -> object:
        page = running.get("application", f"/people/{PERSON}/friends")
        return page.json() if page.status_code == http.client.OK else None

    # On a busy machine the first read of all may end before its load does.
    assert eventually(friends, "the application serves what the worker has loaded") == [{"name": "Ada"}]

    def seen() -> str:
        refreshes = [task for task in running.tasks_in_flower() if task["name"] == "refresh friends_of"]
        return "".join(task["result"] or "" for task in refreshes)

    assert "committed (miss) friends_of" in eventually(seen, "Flower shows the refresh")
    assert running.get("flower", "/workers").status_code == http.client.UNAUTHORIZED

    def targets() -> dict[str, str]:
        active = running.get("prometheus", "/api/v1/targets").json()["data"]["activeTargets"]
        return {target["labels"]["job"]: target["health"] for target in active}

    jobs = ("refresher-workers", "application", "refresher-flower")
    eventually(lambda: targets() == dict.fromkeys(jobs, "up"), "Prometheus scrapes all")


def test_each_process_of_the_application_serves_the_counts_of_all(running: Compose) -> None:
    def hits() -> int:
        text = f'cache_hit_total{{query="friends_of"}} 0\n{running.get("application", "/metrics").text}'
        return int(float(re.findall(r'^cache_hit_total{query="friends_of"} (\S+)$', text, re.MULTILINE)[-1]))

    def get() -> None:
        running.get("application", f"/people/{PERSON}/friends")

    # The first read of all may be a miss.
    before = eventually(lambda: (get(), hits())[1], "a process has written down what it has counted")
    for _ in range(20):
        get()
    eventually(lambda: all(hits() >= before + 20 for _ in range(10)), "each scrape has all of them")


@pytest.mark.parametrize("service", ["redis-cache", "worker", "flower", "application", "prometheus"])
def test_a_health_check_fails_while_its_service_is_stopped(running: Compose, service: str) -> None:
    engine, name = running.engine, name_of(service)
    engine.until_healthy(name)
    pids = engine.podman("top", name, "hpid").split()[1:]
    engine.run("kill", "-STOP", *pids)
    try:
        checked = engine.run("timeout", "10", "podman", "healthcheck", "run", name, may_fail=True)
    finally:
        engine.run("kill", "-CONT", *pids)
    assert checked.returncode != 0


def test_redis_requires_a_password(running: Compose) -> None:
    for server in ("redis-cache", "redis-broker"):
        assert "NOAUTH" in running.engine.execute(name_of(server), "valkey-cli", "get", "x")


@pytest.mark.parametrize("service", SERVICES)
def test_a_container_is_hardened_as_written(running: Compose, service: str) -> None:
    engine, name, said = running.engine, name_of(service), SERVICES[service]
    [inspected] = json.loads(engine.podman("inspect", name))
    assert (inspected["State"]["Status"], inspected["RestartCount"]) == ("running", 0)
    status = engine.execute(name, "cat", "/proc/1/status")
    assert re.search(r"^CapEff:\t0+\n.*?^CapBnd:\t0+$", status, re.MULTILINE | re.DOTALL)
    assert re.search(r"^NoNewPrivs:\t1$", status, re.MULTILINE)
    assert not re.search(r"^Uid:.*\b0\b", status, re.MULTILINE)
    for place in ("/", "/usr/bin", "/run"):
        written = engine.run("podman", "exec", "--user=0", name, "touch", f"{place}/x", may_fail=True)
        assert not said.get("read_only") or "Read-only file system" in written.stderr, (place, written)
    limits = said["deploy"]["resources"]["limits"]
    held = inspected["HostConfig"]
    units = {"m": 2**20, "g": 2**30}
    assert held["Memory"] == int(limits["memory"][:-1]) * units[limits["memory"][-1]]
    assert (held["PidsLimit"], held["NanoCpus"]) == (limits["pids"], float(limits["cpus"]) * 1e9)
    assert set(inspected["NetworkSettings"]["Networks"]) == {f"refresher_{network}" for network in said["networks"]}


def test_a_service_reaches_the_servers_on_its_networks_alone(running: Compose) -> None:
    servers = {"redis-cache": ("cache", 6379), "redis-broker": ("broker", 6379), "neo4j": ("graph", 7687)}
    for service in OURS:
        reached = {
            server
            for server, (_, port) in servers.items()
            if not running.engine.run(
                "podman", "exec", name_of(service), "python", "-c", CONNECT, server, str(port), may_fail=True
            ).returncode
        }
        assert reached == {one for one, (network, _) in servers.items() if network in SERVICES[service]["networks"]}


def read(running: Compose, namespace: str, person: int = PERSON) -> str:
    """The example's value, read with the application's environment but for the namespace; its worker has to load it."""
    call = f"get_cached('friends_of', {{'person_id': {person}}}, timeout=60)"
    source = f"from api_client import get_cached; print({call})"
    name = name_of("application")
    return running.engine.podman("exec", f"--env=CACHE_NAMESPACE={namespace}", name, "python", "-c", source)


class Units:
    """A container whose first process is systemd, with the units installed as README.md says."""

    name = "units"

    def __init__(self, running: Compose, folder: Path) -> None:
        self.engine = running.engine
        deploy = shutil.copytree(running.deploy, folder / "deploy")
        for name in ("worker", "flower"):
            with (deploy / "secrets" / f"{name}.env").open("a", encoding="utf-8") as file:
                file.write("CACHE_NAMESPACE=units\n")
        (folder / "Containerfile").write_text(
            f"FROM {SERVERS}\nCOPY --from=refresher /venv /venv\nRUN ln -s /venv /opt/refresher\n", encoding="utf-8"
        )
        self.engine.build("refresher-systemd", f"--file={folder / 'Containerfile'}", str(folder))
        # Not privileged: systemd must not set what is the whole machine's. It loads seccomp filters of its own.
        self.engine.podman(
            "run", "--detach", f"--name={self.name}", "--systemd=always", "--cap-add=ALL",
            "--security-opt=seccomp=unconfined", f"--network={','.join(NETWORKS)}", f"--volume={deploy}:/srv/deploy:ro",
            "refresher-systemd", "/lib/systemd/systemd",
        )  # fmt: skip
        eventually(lambda: self.attempt("systemctl", "is-system-running").stdout == "running\n", "systemd has started")
        self.do("sh", "-ec", f"cd /srv\n{installation()}")
        # By now: a test that kills a unit's process makes warnings of its own.
        self.warnings = {unit: self._warnings(unit) for unit in ("worker", "flower")}

    def _warnings(self, unit: str) -> str:
        """The warnings about a unit, in the journal once it is ready."""
        eventually(lambda: self.is_ready(unit), f"{unit} is ready")
        return self.do("journalctl", "--quiet", "--priority=warning", f"--unit=refresher-{unit}", "--output=cat")

    def attempt(self, *command: str) -> subprocess.CompletedProcess[str]:
        return self.engine.run("podman", "exec", self.name, *command, may_fail=True)

    def do(self, *command: str) -> str:
        return self.engine.execute(self.name, *command)

    def is_ready(self, unit: str) -> bool:
        """Whether the unit's process does its work: it has started before it can do so, or end in order."""
        page = {"worker": "9465/ready", "flower": "5555/healthcheck"}[unit]
        return self.attempt("wget", "-qO-", f"http://127.0.0.1:{page}").returncode == 0

    def shown(self, unit: str, name: str) -> str:
        """A property of a unit."""
        return self.do("systemctl", "show", "--value", f"--property={name}", f"refresher-{unit}")


def installation() -> str:
    """README.md's commands that install the units."""
    text = (DEPLOY / "README.md").read_text(encoding="utf-8")
    [block] = [one for one in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) if "systemctl" in one]
    return str(block)


@pytest.fixture(scope="module")
def units(running: Compose, tmp_path_factory: pytest.TempPathFactory) -> Units:
    return Units(running, tmp_path_factory.mktemp("units"))


def test_the_units_run_under_systemd(running: Compose, units: Units) -> None:
    assert read(running, "units") == "[{'name': 'Ada'}]"
    eventually(lambda: units.is_ready("flower"), "Flower answers")
    assert "401 Unauthorized" in units.attempt("wget", "-SO-", "http://127.0.0.1:5555/workers").stderr


@pytest.mark.parametrize("unit", ["worker", "flower"])
def test_systemd_confines_a_unit_s_process_as_written(units: Units, unit: str) -> None:
    eventually(lambda: units.is_ready(unit), "it is ready")
    pid = units.shown(unit, "MainPID")
    status = units.do("cat", f"/proc/{pid}/status")
    for line in ("CapEff:\t0+", "CapBnd:\t0+", "NoNewPrivs:\t1", "Seccomp:\t2"):
        assert re.search(f"^{line}$", status, re.MULTILINE), line
    [user] = re.findall(r"^Uid:\t(\d+)", status, re.MULTILINE)
    assert 61184 <= int(user) <= 65519  # the range of DynamicUser=
    mapped = [line.split() for line in units.do("cat", f"/proc/{pid}/uid_map").splitlines()]
    assert mapped == [["0", "0", "1"], [user, user, "1"]]  # PrivateUsers=
    within = ("nsenter", f"--target={pid}", "--mount")
    for place in ("/", "/usr", "/etc/refresher", "/var/lib"):
        assert "Read-only file system" in units.attempt(*within, "touch", f"{place}/x").stderr
    for place in ("/tmp", "/home"):  # noqa: S108 - PrivateTmp= and ProtectHome= hide what is there
        units.do("touch", f"{place}/outside")
        assert units.attempt(*within, "ls", f"{place}/outside").returncode != 0
    assert re.search(r"^proc /proc .*hidepid=invisible", units.do(*within, "cat", "/proc/self/mounts"), re.MULTILINE)
    assert units.warnings[unit] == ""  # such as a line of the unit that systemd ignores


def test_systemd_restarts_a_killed_worker_and_stops_one_in_order(running: Compose, units: Units) -> None:
    for unit in ("worker", "flower"):
        eventually(lambda unit=unit: units.is_ready(unit), f"{unit} is ready")
    restarts = int(units.shown("worker", "NRestarts"))
    units.do("systemctl", "kill", "--signal=KILL", "refresher-worker")
    eventually(lambda: int(units.shown("worker", "NRestarts")) == restarts + 1, "it is started again")
    assert read(running, "units", person=1) == "[{'name': None}]"
    eventually(lambda: units.is_ready("worker"), "it is ready again")
    units.do("systemctl", "stop", "refresher-worker", "refresher-flower")
    for unit in ("worker", "flower"):
        assert [units.shown(unit, name) for name in ("Result", "ExecMainStatus")] == ["success", "0"]
    units.do("systemctl", "start", "refresher-worker", "refresher-flower")


@pytest.fixture(scope="module")
def pods(running: Compose, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pod]:
    """The chart's pods, one of each, on the networks of compose.yaml's servers."""
    folder = tmp_path_factory.mktemp("pods")
    worker, flower = running.variables("worker"), running.variables("flower")
    values = {
        "image": {"repository": "localhost/refresher", "tag": "latest"},
        "namespace": "pods",
        "queries": {
            "modules": [worker["REFRESHER_QUERIES"]],
            "files": {"my_queries.py": (running.deploy / "queries" / "my_queries.py").read_text(encoding="utf-8")},
        },
        "cache": {"url": worker["CACHE_REDIS_URL"]},
        "broker": {"url": worker["CACHE_BROKER_URL"]},
        "graph": {"uri": worker["NEO4J_URI"], "password": worker["NEO4J_PASSWORD"]},
        "flower": {"basicAuth": flower["FLOWER_BASIC_AUTH"]},
    }
    (folder / "values.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    done = template("--values", str(folder / "values.yaml"))
    assert done.returncode == 0, done.stderr
    manifests = [one for one in yaml.safe_load_all(done.stdout) if one]
    return {part: Pod(running.engine, manifests, part, NETWORKS, folder) for part in ("worker", "flower")}


def test_the_chart_s_worker_refreshes_and_answers_its_probes(running: Compose, pods: dict[str, Pod]) -> None:
    for probe in ("startup", "liveness", "readiness"):
        eventually(lambda probe=probe: pods["worker"].probe(probe) == http.client.OK, f"its {probe} probe")
    assert read(running, "pods") == "[{'name': 'Ada'}]"
    assert b'xfetch_query_ttl_seconds{query="friends_of"} 300.0' in pods["worker"].request(9464, "/metrics")[1]
    assert running.engine.is_healthy(pods["worker"].name)  # the image's own check


def test_the_chart_s_flower_answers_its_probes_and_requires_a_password(running: Compose, pods: dict[str, Pod]) -> None:
    for probe in ("liveness", "readiness"):
        eventually(lambda probe=probe: pods["flower"].probe(probe) == http.client.OK, f"its {probe} probe")
    assert pods["flower"].request(5555, "/workers")[0] == http.client.UNAUTHORIZED
    password = running.variables("flower")["FLOWER_BASIC_AUTH"]
    assert pods["flower"].request(5555, "/workers", password)[0] == http.client.OK


@pytest.mark.parametrize("part", ["worker", "flower"])
def test_the_chart_s_pods_are_confined(running: Compose, pods: dict[str, Pod], part: str) -> None:
    status = running.engine.execute(pods[part].name, "cat", "/proc/1/status")
    for line in ("Uid:\t10001\t.*", "Gid:\t10001\t.*", "CapEff:\t0+", "CapBnd:\t0+", "NoNewPrivs:\t1", "Seccomp:\t2"):
        assert re.search(f"^{line}$", status, re.MULTILINE), line
    for place, writable in (("/", False), ("/run", False), ("/queries", False), ("/tmp", True)):  # noqa: S108 - a pod's own
        words = ("podman", "exec", "--user=0", pods[part].name, "touch", f"{place}/x")
        refused = "Read-only file system" in running.engine.run(*words, may_fail=True).stderr
        assert refused != writable, place


@pytest.mark.last  # it ends what the others share
def test_all_containers_stop_gracefully_and_nothing_is_left(
    running: Compose, units: Units, pods: dict[str, Pod]
) -> None:
    engine = running.engine
    for pod in pods.values():
        pod.stop()
    # These are no containers of compose's, and keep its networks in use.
    engine.podman("rm", "--force", "--time=0", units.name, *(pod.name for pod in pods.values()))
    running.run("stop", *OURS)
    codes = {one: engine.podman("inspect", "--format={{.State.ExitCode}}", name_of(one)) for one in OURS}
    assert codes == dict.fromkeys(OURS, "0")
    running.run("down", "--volumes")
    assert [engine.podman(*words, "--quiet") for words in (("ps", "--all"), ("volume", "ls"))] == ["", ""]
    assert engine.podman("network", "ls", "--format={{.Name}}") == "podman"  # the engine's own
