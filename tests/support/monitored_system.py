"""A complete system that a Prometheus scrapes, each part of which can be broken alone."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import redis
from typer.testing import CliRunner

from refresher.cli.commands import app
from refresher.embedded import ArcadeDbServer, GuardedProcess, RedisServer, free_port
from tests.support.fault_proxy import FaultProxy
from tests.support.faulty_queries import GATE, HANG_SECONDS, MODE
from tests.support.flower import ROOT, Flower
from tests.support.requirements import skip_or_fail
from tests.support.scripted_queries import CONTROL_URL
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

RULES: Final = Path(__file__).parents[2] / "deploy" / "prometheus"
SCRAPE_SECONDS: Final = {"refresher-workers": 3}
"""A worker takes 2.5 s to report that a server does not answer. All others are scraped each second."""
MEMORY: Final = {"maxmemory": "100mb", "appendonly": "no"}


class Prometheus:
    """A running Prometheus that scrapes ``ports``, by the names of their jobs; ``minutes`` are as many seconds."""

    def __init__(self, stack: ExitStack, folder: Path, ports: Mapping[str, int], minutes: int) -> None:
        program = shutil.which("prometheus")
        if program is None:
            skip_or_fail("prometheus is not installed (Debian's package prometheus)")
        for name in ("refresher.rules.yml", "refresher.alerts.yml"):
            # The same rules, over a period short enough for a test.
            text = re.sub(r"\[\d+m\]", f"[{minutes}s]", (RULES / name).read_text(encoding="utf-8"))
            (folder / name).write_text(re.sub(r"for: \d+[ms]", "for: 1s", text), encoding="utf-8")
        jobs = [
            {
                "job_name": job,
                "scrape_interval": f"{SCRAPE_SECONDS.get(job, 1)}s",
                "scrape_timeout": f"{SCRAPE_SECONDS.get(job, 1)}s",
                "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
            }
            for job, port in ports.items()
        ]
        # JSON is YAML.
        config = {
            "global": {"evaluation_interval": "1s"},
            "rule_files": ["refresher.rules.yml", "refresher.alerts.yml"],
            "scrape_configs": jobs,
        }
        (folder / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")
        port = free_port()
        process = GuardedProcess.start(
            [
                program, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            env={}, cwd=folder, log_file=folder / "prometheus.log",
        )  # fmt: skip
        stack.callback(process.kill)
        self._http = stack.enter_context(
            httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=MAX_WAIT_SECONDS, trust_env=False)
        )
        eventually(self._is_ready, "Prometheus is ready")

    def _is_ready(self) -> bool:
        try:
            return self._http.get("/-/ready").status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def query(self, expression: str) -> list[Any]:
        """Return the samples of an instant query, without those that are not numbers."""
        reply = self._http.get("/api/v1/query", params={"query": expression}).json()
        assert reply["status"] == "success", f"{expression}: {reply}"
        return [sample for sample in reply["data"]["result"] if sample["value"][1] != "NaN"]

    def firing(self) -> set[str]:
        """Return the names of the firing alerts."""
        return {sample["metric"]["alertname"] for sample in self.query('ALERTS{alertstate="firing"}')}


# Four keys that are read all the time, and a new one twice a second.
READER: Final = """
import itertools, sys, threading, time
from prometheus_client import start_http_server
from api_client import CacheClient
start_http_server(int(sys.argv[1]), addr="127.0.0.1")
client = CacheClient.from_env()
def read_new():
    for number in itertools.count():
        client.get("people", {"key": f"new-{time.time_ns()}"}, default=None, timeout=2)
        time.sleep(0.5)
threading.Thread(target=read_new, daemon=True).start()
for round in itertools.count():
    client.get("people", {"key": f"k{round % 4}"}, default=None, timeout=1)
    time.sleep(0.05)
"""


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """A result of `refresher doctor`: its exit code, and each line's level and text by its check."""

    exit_code: int
    findings: Mapping[str, tuple[str, str]]


class MonitoredSystem:
    """Cache, broker, graph, one worker, one reader, perhaps Flower, and a Prometheus that scrapes these three.

    ``control`` is a Redis that no part of the system uses: by it a test controls the loads.
    """

    def __init__(
        self, stack: ExitStack, graph: ArcadeDbServer, control: RedisServer, folder: Path, *, with_flower: bool
    ) -> None:
        self._stack, self._folder, self._starts = stack, folder, 0
        self.gives_back: Callable[[], None] = lambda: None  # a resource that a fault has taken
        self.cache_server = self._redis("allkeys-lru")
        self.broker_server = self._redis("noeviction")
        self.graph_proxy = stack.enter_context(FaultProxy.before(graph.bolt_uri))
        self.control = stack.enter_context(redis.Redis.from_url(control.url(2), decode_responses=True))
        self.control.flushdb()
        self.ports = {name: free_port() for name in ("refresher-workers", "application", "health")}
        self.env = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "CACHE_REDIS_URL": self.cache_server.url(0),
            "CACHE_BROKER_URL": self.broker_server.url(0),
            CONTROL_URL: control.url(2),
            "NEO4J_URI": self.graph_proxy.url(graph.bolt_uri),
            "NEO4J_USER": graph.user,
            "NEO4J_PASSWORD": graph.password,
            "NEO4J_DATABASE": graph.database,
            "REFRESHER_QUERIES": "tests.support.faulty_queries",
            "CACHE_XFETCH_WORKERS": "2",
            "CACHE_XFETCH_MIN_TTL": "0",
            "CACHE_XFETCH_TIMEOUT": "2s",
            "CACHE_XFETCH_RETRY_MAX": "1",
            "CACHE_COOLING": "1s",
            "CACHE_COOLING_MAX": "2s",
            "CACHE_QUEUE_TTL": "10s",
            "CACHE_METRICS_PORT": str(self.ports["refresher-workers"]),
            "CACHE_HEALTH_PORT": str(self.ports["health"]),
        }
        self.cache = self._client(self.cache_server)
        self.broker = self._client(self.broker_server)
        self.worker = self.start_worker()
        self.reader = self.start_reader()
        scraped = {job: self.ports[job] for job in ("refresher-workers", "application")}
        if with_flower:
            self.flower = self.start_flower()
            scraped["refresher-flower"] = self.flower.port
        self.prometheus = Prometheus(stack, folder, scraped, minutes=6)

    def _redis(self, policy: str) -> RedisServer:
        return self._stack.enter_context(RedisServer.start(extra_config={**MEMORY, "maxmemory-policy": policy}))

    def _client(self, server: RedisServer) -> redis.Redis:
        return self._stack.enter_context(redis.Redis.from_url(server.url(0)))

    def start_worker(self, **changes: str) -> GuardedProcess:
        """Start a worker with these changes to its environment; return when it consumes, or tries to."""
        self._starts += 1
        worker = self._start(
            ["-m", "celery", "-A", "refresher", "worker", "--loglevel", "INFO", "--without-gossip", "--without-mingle"],
            f"worker-{self._starts}", changes,
        )  # fmt: skip
        eventually(lambda: "ready." in worker.log_file.read_text(), "the worker is ready")
        return worker

    def start_reader(self, **changes: str) -> GuardedProcess:
        """Start a reader with these changes to its environment."""
        self._starts += 1
        changes = {"CACHE_METRICS": "true", **changes}
        return self._start(["-c", READER, str(self.ports["application"])], f"reader-{self._starts}", changes)

    def start_flower(self, **env: str) -> Flower:
        """Start Flower."""
        flower = Flower(self.env, self._folder, **env)
        self._stack.callback(flower.process.kill)
        return flower

    def restart_flower(self) -> None:
        """Start Flower on the port of the last one."""
        port, self.flower = self.flower.port, self.start_flower(FLOWER_PORT=str(self.flower.port))
        self.flower.port = port

    def _start(self, arguments: list[str], name: str, changes: Mapping[str, str]) -> GuardedProcess:
        process = GuardedProcess.start(
            [sys.executable, *arguments], env={**self.env, **changes}, cwd=ROOT, log_file=self._folder / f"{name}.log"
        )
        self._stack.callback(process.kill)
        return process

    def replace_worker(self, **changes: str) -> None:
        """End the worker, and start one with these changes to its environment."""
        self.worker.kill()
        self.worker = self.start_worker(**changes)

    def replace_reader(self, **changes: str) -> None:
        """End the reader, and start one with these changes to its environment."""
        self.reader.kill()
        self.reader = self.start_reader(**changes)

    def let_loads(self, mode: str) -> None:
        """Set the outcome of loads; "": they succeed. Hanging loads continue."""
        self.control.set(MODE, mode)
        if mode != "hangs":
            self.control.rpush(GATE, *["go"] * 100)
            self.control.expire(GATE, HANG_SECONDS)
        else:
            self.control.delete(GATE)

    def command(self, *words: str, **changes: str) -> tuple[int, Any]:
        """Run a command as an operator of this system would; return its exit code and its JSON output."""
        done = CliRunner().invoke(app, [*words, "--json"], env={**self.env, **changes})
        return done.exit_code, json.loads(done.stdout or "null")

    def doctor(self, **changes: str) -> DoctorReport:
        """Run `refresher doctor`."""
        exit_code, said = self.command("doctor", **changes)
        return DoctorReport(exit_code, {one["check"]: (one["level"], one["said"]) for one in said["findings"]})

    def forget_failures(self) -> None:
        """Drop the dead letters, as an operator would who has fixed their cause."""
        self.command("dead", "drop", "--all")


def stop(pid: int) -> None:
    """Stop a process and all of its group, like a frozen container."""
    os.killpg(pid, signal.SIGSTOP)


def go_on(pid: int) -> None:
    """Continue a stopped process."""
    os.killpg(pid, signal.SIGCONT)
