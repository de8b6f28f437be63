"""``refresher status`` beside a real worker on RabbitMQ. On Redis the page of it is: see test_status_page."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from typer.testing import CliRunner

from api_client import RefreshFailed
from refresher.cli.commands import app
from tests.acceptance.conftest import System
from tests.servers.rabbitmq_server import RabbitMqServer
from tests.support.waiting import eventually

# What is looked at stands still for as long as that takes.
LONG = {"CACHE_QUEUE_TTL": "10m", "CACHE_COOLING": "10m", "CACHE_XFETCH_TIMEOUT": "60s"}


def told(system: System) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["status", "--json"], env=system.env)
    assert done.exit_code == 0, done.output
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def busy(system: System) -> dict[str, Any]:
    """Let a load be under way, another wait for it in the queue, and a third be given up; what is told then."""
    system.env |= LONG
    system.start_worker("-c", "1", "-P", "threads", CACHE_XFETCH_RETRY_ENABLED="false")
    client = system.client()
    system.control.rpush("script:failing", "fail")
    with pytest.raises(RefreshFailed):
        client.get("long_lived", {"key": "failing"})
    client.refresh("long_lived", {"key": "a", "hold": "gate"})
    eventually(lambda: system.loads("a") == 1, "it runs")
    client.refresh("long_lived", {"key": "b"})
    return judged(eventually(lambda: told_by_workers(system), "the worker answers"))


def told_by_workers(system: System) -> dict[str, Any]:
    """What is told, once a worker has answered both questions in time."""
    seen = told(system)
    return seen if any(worker["processes"] for worker in seen["workers"]) else {}


def judged(seen: dict[str, Any]) -> dict[str, Any]:
    row = seen["keys"]["queries"]["long_lived"]
    assert (row["running"], row["queued"], row["cooling"], row["keys"]) == (1, 1, 1, 0)
    assert seen["dead"]["open"] == {"long_lived": 1}
    ((by, lasts),) = [(run["by"], run["lasts"]) for run in seen["keys"]["runs"]]
    assert by.startswith("worker-1@test:")
    assert 0 < lasts < 600
    (worker,) = seen["workers"]
    assert (worker["name"], worker["processes"]) == ("worker-1@test", 1)
    assert worker["taken"]["long_lived"] >= 2
    assert seen["problems"] == {}
    return seen


def test_what_workers_do_is_seen_on_rabbitmq(system: System, rabbitmq: RabbitMqServer) -> None:
    system.env |= {"CACHE_BROKER_URL": rabbitmq.url, "CACHE_NAMESPACE": f"t{uuid.uuid4().hex[:8]}"}
    seen = busy(system)
    assert seen["workers"][0]["pool"] == "threads"
    assert seen["queues"]["refresh"] + seen["queues"]["miss"] <= 1  # RabbitMQ has handed one out already, or has not
