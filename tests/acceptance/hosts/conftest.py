"""Servers and a worker for each broker, shared by all hosts; and how a host is driven."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from celery import Celery

from refresher.embedded import GuardedProcess, RedisServer
from tests.acceptance.conftest import NO_GRAPH, ROOT, System
from tests.acceptance.hosts.table import BROKER, PORTS, Host
from tests.support.waiting import MAX_WAIT_SECONDS, eventually
from tests.support.web_server import TROUBLE, WebServer

Report = dict[str, Any]
HostSystems = Callable[[str], "HostSystem"]
HARMLESS = re.compile("as root|superuser privileges|_security_error", re.IGNORECASE)


class HostSystem:
    """The servers of a host."""

    def __init__(self, system: System, own: RedisServer) -> None:
        self.system, self._own = system, own

    def env(self, host: Host) -> dict[str, str]:
        """The environment of a host."""
        env, own = self.system.env, self._own.url(5)
        urls = {"redis": env["CACHE_REDIS_URL"], "broker": env["CACHE_BROKER_URL"], "the host's own": own}
        ports = ",".join(f"{name}={urlsplit(url).port}" for name, url in urls.items())
        return {**env, PORTS: ports, BROKER: own, **host.env}


class Ended:
    """What a host did: the reports of all its processes, its exit code, and its log."""

    def __init__(self, reports: list[Report], exit_code: int | None, log: str) -> None:
        self.reports, self.exit_code, self.log = reports, exit_code, log

    def trouble(self) -> list[str]:
        """The lines of its log that no healthy run has."""
        return [line for line in self.log.splitlines() if TROUBLE.search(line) and not HARMLESS.search(line)]


@pytest.fixture(scope="session")
def systems(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostSystems]:
    """The servers by their broker's name, with a worker: started on first use."""
    made: dict[str, HostSystem] = {}
    with ExitStack() as stack:

        def system(broker: str) -> HostSystem:
            if broker not in made:
                redis = stack.enter_context(RedisServer.start())
                control = request.getfixturevalue("redis_server")
                folder = tmp_path_factory.mktemp("plant")
                system = System(stack, redis, control, NO_GRAPH, folder)
                if broker == "rabbitmq":
                    url = request.getfixturevalue("rabbitmq").url
                    system.env |= {"CACHE_BROKER_URL": url, "CACHE_NAMESPACE": f"t{uuid.uuid4().hex[:8]}"}
                else:
                    system.env |= {"CACHE_BROKER_URL": stack.enter_context(RedisServer.start()).url(0)}
                system.start_worker("-c", "2", "-n", f"{folder.name}@test")  # RabbitMQ takes a name once
                made[broker] = HostSystem(system, control)
            return made[broker]

        yield system


def drive(system: HostSystem, host: Host, folder: Path) -> Ended:
    """Let a host run: each of its processes uses the cache, closes it, and ends."""
    return {"http": _serve, "program": _run, "celery": _work}[host.kind](system, host, folder)


def _serve(system: HostSystem, host: Host, folder: Path) -> Ended:
    # gunicorn has a socket in the home directory.
    server = WebServer.start(host.command, {**system.env(host), "HOME": str(folder)}, folder / "log", cwd=ROOT)
    try:
        used = _from_each(server, "/use", host.processes)
        closed = _from_each(server, "/close", host.processes)
        exit_code = server.stop()
    finally:
        server.process.kill()
        server.http.close()
    return Ended(used + closed, exit_code, (folder / "log").read_text())


def _from_each(server: WebServer, path: str, processes: int) -> list[Report]:
    """Send requests, several at a time, until each process has answered; one report for each."""
    reports: dict[int, Report] = {}

    def request(_: int) -> None:
        reply = server.http.get(path)
        assert reply.status_code == 200, server.process.tail_of_log()
        reports.setdefault(reply.json()["pid"], reply.json())

    def all_have_answered() -> bool:
        with ThreadPoolExecutor(2 * processes) as pool:
            list(pool.map(request, range(2 * processes)))
        return len(reports) == processes

    eventually(all_have_answered, f"{processes} processes have answered")
    return list(reports.values())


def _run(system: HostSystem, host: Host, folder: Path) -> Ended:
    program = _start(system, host, folder, "tests.acceptance.hosts.programs", *host.command.split())
    with ExitStack() as stack:
        stack.callback(program.kill)
        exit_code = program.wait(MAX_WAIT_SECONDS)
    lines = (folder / "log").read_text().splitlines()
    reports = [json.loads(line) for line in lines if line.startswith("{")]
    return Ended(reports, exit_code, "\n".join(line for line in lines if not line.startswith("{")))


def _work(system: HostSystem, host: Host, folder: Path) -> Ended:
    module, url = "tests.acceptance.hosts.celery_reader", system.env(host)[BROKER]
    command = ("-A", module, "worker", "--loglevel", "INFO", *host.command.split())
    worker = _start(system, host, folder, "celery", *command)
    with ExitStack() as stack:
        stack.callback(worker.kill)
        eventually(lambda: _is_ready(worker), "the host's worker is ready")
        app = stack.enter_context(Celery("caller", broker=url, backend=url, set_as_current=False))
        connection = stack.enter_context(app.connection_for_write())
        call = partial(app.send_task, connection=connection)
        reports = [call(name).get(timeout=MAX_WAIT_SECONDS) for name in ("host.use", "host.close")]
        os.kill(worker.pid, signal.SIGTERM)
        exit_code = worker.wait(MAX_WAIT_SECONDS)
    return Ended(reports, exit_code, (folder / "log").read_text())


def _is_ready(worker: GuardedProcess) -> bool:
    assert worker.poll() is None, worker.tail_of_log()
    return "ready." in worker.log_file.read_text()


def _start(system: HostSystem, host: Host, folder: Path, *arguments: str) -> GuardedProcess:
    env, log = system.env(host), folder / "log"
    return GuardedProcess.start([sys.executable, "-m", *arguments], env=env, cwd=ROOT, log_file=log)
