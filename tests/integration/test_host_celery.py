"""A reader beside an application's own Celery: its pools, its default app and its broker stay as they were."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis

from api_client.config.broker import miss_queue, refresh_queue
from refresher.embedded import RedisServer

ROOT = Path(__file__).parents[2]
CACHE, BROKER, HOST = 0, 1, 2


class Host:
    """Runs an application of its own process beside the cache."""

    def __init__(self, server: RedisServer, folder: Path) -> None:
        self._server = server
        self.env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}

    def run(self, order: str, **changes: str) -> dict[str, Any]:
        """Run it with its own Celery used in this ``order`` relative to the cache; return what it found."""
        urls = map(self._server.url, (HOST, CACHE, BROKER))
        command = [sys.executable, "-W", "error", "-m", "tests.support.celery_host", order, *urls]
        done = subprocess.run(command, env=self.env | changes, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def queued(self, database: int, *queues: str) -> int:
        with redis.Redis.from_url(self._server.url(database)) as broker:
            return sum(broker.llen(queue) for queue in queues)


@pytest.fixture
def host(clean_redis: RedisServer, tmp_path: Path) -> Host:
    return Host(clean_redis, tmp_path)


def django_project(folder: Path) -> dict[str, str]:
    (folder / "host_settings.py").write_text("SECRET_KEY = 'of a test'\nINSTALLED_APPS = []\n")
    return {"DJANGO_SETTINGS_MODULE": "host_settings"}


@pytest.mark.parametrize("django", [False, True], ids=["plain", "django"])
@pytest.mark.parametrize("order", ["client", "host", "between"])
def test_a_reader_leaves_the_application_s_celery_unchanged(
    host: Host, tmp_path: Path, order: str, django: bool
) -> None:
    found = host.run(order, **(django_project(tmp_path) if django else {}))
    expected = {"connections": 10, "default": "host", "current": "host"}
    if order == "client":
        expected |= {"default_before_the_host": None, "current_before_the_host": None}
    else:
        expected |= {"same_producers": True}
    assert found == expected
    assert host.queued(BROKER, miss_queue("cache"), refresh_queue("cache")) == 2
    assert (host.queued(HOST, "host.shared"), host.queued(BROKER, "host.shared")) == (1, 0)


@pytest.mark.parametrize("django", [False, True], ids=["plain", "django"])
def test_an_application_that_makes_the_worker_s_app_keeps_its_own(host: Host, tmp_path: Path, django: bool) -> None:
    found = host.run("worker", **(django_project(tmp_path) if django else {}))
    assert found == {
        "default_before_the_host": None, "current_before_the_host": None,
        "connections": 10, "default": "host", "current": "host",
    }  # fmt: skip
    assert host.queued(HOST, "host.shared") == 1
