"""``refresher status`` beside a real worker on RabbitMQ. For its page, on Redis, see test_status_page."""

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

pytestmark = pytest.mark.usefixtures("patient_commands")

# The state stays as it is for the duration of the test.
LONG = {"CACHE_QUEUE_TTL": "10m", "CACHE_COOLING": "10m", "CACHE_XFETCH_TIMEOUT": "60s"}


def status_of(system: System) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["status", "--json"], env=system.env)
    assert done.exit_code == 0, done.output
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def busy(system: System) -> dict[str, Any]:
    """Let one load run, another wait in the queue and a third fail for good; return the checked status."""
    system.env |= LONG
    system.start_worker("-c", "1", "-P", "threads", CACHE_XFETCH_RETRY_ENABLED="false")
    client = system.client()
    system.control.rpush("script:failing", "fail")
    with pytest.raises(RefreshFailed):
        client.get("long_lived", {"key": "failing"})
    client.refresh("long_lived", {"key": "a", "hold": "gate"})
    eventually(lambda: system.loads("a") == 1, "it runs")
    client.refresh("long_lived", {"key": "b"})
    return checked(eventually(lambda: status_with_workers(system), "the worker answers"))


def status_with_workers(system: System) -> dict[str, Any]:
    """Return the status, if a worker has answered both queries in time."""
    seen = status_of(system)
    return seen if any(worker["processes"] for worker in seen["workers"]) else {}


def checked(seen: dict[str, Any]) -> dict[str, Any]:
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


def test_status_shows_runs_queues_and_workers_on_rabbitmq(system: System, rabbitmq: RabbitMqServer) -> None:
    system.env |= {"CACHE_BROKER_URL": rabbitmq.url, "CACHE_NAMESPACE": f"t{uuid.uuid4().hex[:8]}"}
    seen = busy(system)
    assert seen["workers"][0]["pool"] == "threads"
    assert seen["queues"]["refresh"] + seen["queues"]["miss"] <= 1  # RabbitMQ has handed one out already, or has not
