"""The services of compose.yaml as processes of this machine: their commands, environments and health checks as written.

The features of containers are replaced: names by addresses and ports of loopback, mounted and copied files by those of
`deploy`; there is no home, and for our own images the root is read-only.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from refresher.embedded import GuardedProcess, free_port
from refresher.embedded.redis_server import bundled_valkey_server
from tests.support.deployment_files import ROOT, compose, copy_with_secrets, environment, image
from tests.support.waiting import eventually

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
