"""Flower as `celery -A refresher flower` starts it, in a process of its own, and requests to it."""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from refresher.embedded import GuardedProcess, free_port
from tests.support.http_requests import fetch

ROOT = Path(__file__).parents[2]
USER, PASSWORD = "looker", "a-password-of-this-test"


class Flower:
    """A running Flower, with these options and variables beside those that the workers' app sets."""

    def __init__(self, system_env: Mapping[str, str], folder: Path, *options: str, **env: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = GuardedProcess.start(
            [sys.executable, "-m", "celery", "-A", "refresher", "flower", *options],
            env={**system_env, "FLOWER_PORT": str(self.port), **env},
            cwd=ROOT,
            log_file=folder / "flower.log",
        )

    def fetch(self, path: str, *, password: str | None = PASSWORD, method: str = "GET") -> tuple[int, bytes]:
        credentials = f"{USER}:{password}" if password else ""
        return fetch(self.port, path, credentials=credentials, method=method)

    def sees(self, worker: str) -> bool:
        """Return whether it has seen a worker, and so listens to the events of all."""
        status, answer = self.fetch("/api/workers?status=true")
        return status == http.client.OK and json.loads(answer).get(worker) is True
