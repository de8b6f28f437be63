"""Processes of the demo beside the servers: Celery workers and Flower. They can't outlive the demo."""

from __future__ import annotations

import http.client
import secrets
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from refresher.demo.errors import DemoError
from refresher.embedded import GuardedProcess, free_port

if TYPE_CHECKING:
    from refresher.demo.worker_events import WorkerEvents

START_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 0.05
_FLOWER_USER: Final = "demo"


class Workers:
    """The Celery workers of a run, one after the other.

    Args:
        environ: their whole environment, which is where their passwords come from.
        events: report that they are ready.
        namespace: part of their names, which differ so from all others on that broker.
        logs: a directory for their logs.
    """

    def __init__(self, environ: Mapping[str, str], events: WorkerEvents, namespace: str, logs: Path) -> None:
        # A killed pool's temporary files are removed with the logs.
        self._environ = {**environ, "TMPDIR": str(logs)}
        self._events, self._namespace, self._logs = events, namespace, logs
        self._process: GuardedProcess | None = None
        self._started = 0

    @property
    def name(self) -> str:
        """Celery's name of the current one."""
        return f"worker-{self._started}@{self._namespace}"

    def start(self) -> None:
        """Start one; `ready_at` reports when it is ready."""
        self._started += 1
        argv = [
            sys.executable, "-m", "celery", "-A", "refresher", "worker", "--without-gossip", "--without-mingle",
            "-n", self.name, "-l", "WARNING",
        ]  # fmt: skip
        log_file = self._logs / f"worker-{self._started}.log"
        self._process = GuardedProcess.start(
            argv, log_file=log_file, env=self._environ, remove_when_orphaned=self._logs
        )

    def ready_at(self) -> float | None:
        """Return when the current one became ready (monotonic, s), or None.

        Raises:
            DemoError: it has ended.
        """
        if self._process is not None and self._process.poll() is not None:
            raise DemoError(f"the worker ended unexpectedly; the end of its log:\n{self._process.tail_of_log()}")
        with self._events.lock:
            return self._events.counts.online_at.get(self.name)

    def wait_until_ready(self) -> None:
        """Wait until the current one is ready.

        Raises:
            DemoError: it ended, or was not ready within 30 s.
        """
        deadline = time.monotonic() + START_SECONDS
        while self.ready_at() is None:
            if time.monotonic() >= deadline:
                tail = "" if self._process is None else self._process.tail_of_log()
                raise DemoError(f"the worker was not ready within {START_SECONDS:g} s; the end of its log:\n{tail}")
            time.sleep(_POLL_SECONDS)

    def kill(self) -> None:
        """SIGKILL the current one and its pool, and wait until all are gone."""
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """End the current one, gracefully if it ends within some seconds."""
        if self._process is not None:
            self._process.terminate(_STOP_SECONDS)


@dataclass(frozen=True, slots=True)
class Flower:
    """A running Flower."""

    process: GuardedProcess
    port: int
    password: str

    @classmethod
    def start(cls, environ: Mapping[str, str], logs: Path) -> Flower | None:
        """Start Flower on a free port of the loopback address; None where it is not installed."""
        if find_spec("flower") is None:
            return None
        port, password = free_port(), secrets.token_urlsafe(12)
        settings = {"FLOWER_PORT": str(port), "FLOWER_BASIC_AUTH": f"{_FLOWER_USER}:{password}"}
        process = GuardedProcess.start(
            [sys.executable, "-m", "celery", "-A", "refresher", "flower"],
            log_file=logs / "flower.log",
            env={**environ, **settings},
            remove_when_orphaned=logs,
        )
        return cls(process, port, password)

    @property
    def contact(self) -> str:
        """URL and credentials, for the user."""
        return f"http://127.0.0.1:{self.port}, user {_FLOWER_USER}, password {self.password}"

    def close(self) -> None:
        """End it."""
        self.process.terminate(_STOP_SECONDS)

    def wait_until_ready(self) -> None:
        """Wait until it answers.

        Raises:
            DemoError: it ended, or did not answer within 30 s.
        """
        deadline = time.monotonic() + START_SECONDS
        while not _is_healthy(self.port):
            if self.process.poll() is not None or time.monotonic() >= deadline:
                self.process.kill()
                raise DemoError(f"Flower did not start; the end of its log:\n{self.process.tail_of_log()}")
            time.sleep(_POLL_SECONDS)


def _is_healthy(port: int) -> bool:
    # Not urllib, which would use a proxy of the environment for a loopback address.
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1.0)
    try:
        connection.request("GET", "/healthcheck")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
