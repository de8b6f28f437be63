"""Workers that are shut down in the middle of refreshes, and loads of which half fail."""

from __future__ import annotations

import os
import signal

import pytest
from celery import Celery

from tests.acceptance.worker_faults.conftest import (
    COOLING_SECONDS,
    PATIENT_SETTINGS,
    SLACK_SECONDS,
    WITHIN_LEASE_SECONDS,
    WITHIN_QUEUE_TTL_SECONDS,
    World,
)
from tests.acceptance.worker_faults.traffic import Traffic
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

pytestmark = pytest.mark.usefixtures("patient_publishers")

MAX_RETRY_SECONDS = 3.0  # three pauses of a second at most: the settings have a backoff of 1


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return PATIENT_SETTINGS


@pytest.mark.failure("W7")
def test_a_warm_shutdown_under_load_finishes_the_running_load(world: World) -> None:
    key = world.stale_key()
    with Traffic(world) as traffic:
        traffic.goes_on_for(5)
        world.start_held_load(key)
        worker = world.worker()
        os.kill(worker.pid, signal.SIGTERM)
        eventually(lambda: "Warm shutdown" in worker.log_file.read_text(), "it has begun to end")
        traffic.goes_on_for(5)
        world.let_go(key)
        assert worker.wait(MAX_WAIT_SECONDS) == 0
        world.worker()
        traffic.goes_on_for(5)
    world.verify(within_seconds=WITHIN_LEASE_SECONDS)
    assert world.runs(key) == world.claims(key) == ["committed", "committed"]


@pytest.mark.promise("Refreshing", "A cold shutdown hands over running loads")
@pytest.mark.failure("W8")
def test_a_cold_shutdown_under_load_hands_over_the_running_load(world: World) -> None:
    key = world.stale_key()
    with Traffic(world) as traffic:
        traffic.goes_on_for(5)
        world.start_held_load(key)
        worker = world.worker()
        # Celery's main process would wait for a load whose start has not been reported to it yet.
        eventually(lambda: key_is_shown_as_begun(world, key), "the main process knows that it has begun")
        os.kill(worker.pid, signal.SIGQUIT)
        assert worker.wait(MAX_WAIT_SECONDS) is not None
        traffic.goes_on_for(5)
        world.let_go(key)
        world.worker()
        traffic.goes_on_for(5)
    world.verify(within_seconds=WITHIN_QUEUE_TTL_SECONDS, killed=True)
    assert world.runs(key) == ["committed", "handed over", "committed"]


@pytest.mark.failure("W14")
def test_keys_are_fresh_again_after_half_of_the_loads_failed(world: World) -> None:
    with Traffic(world) as traffic:
        world.control.set("failing", 50)
        traffic.goes_on_for(60)
    # No value was lost, so errors are unlikely; and Redis always answers in time.
    assert set(traffic.errors) <= {"RefreshFailed", "WaitTimeout"}
    verdict = world.verify(within_seconds=20 * (COOLING_SECONDS + MAX_RETRY_SECONDS) + SLACK_SECONDS)
    assert verdict.faults == []
    assert sum(len(world.loads(key)) for key in traffic.keys) > sum(len(world.runs(key)) for key in traffic.keys)


def key_is_shown_as_begun(world: World, key: str) -> bool:
    """Return whether a worker reports that it is running a refresh of this key."""
    with Celery(broker=world.broker_server.url(1), set_as_current=False) as app:
        active = app.control.inspect(timeout=2.0).active() or {}
    return any(f'"{key}"' in str(task["args"]) and task["time_start"] for tasks in active.values() for task in tasks)
