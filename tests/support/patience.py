"""Long timeouts of publishers for a reader's program that a test starts: a fixture acts in the test's process only."""

from __future__ import annotations

from api_client import aio, client
from api_client.trigger import broker
from tests.support.waiting import MAX_WAIT_SECONDS


def publish_patiently() -> None:
    """Raise the timeouts, as the fixture `patient_publishers` does."""
    broker.TIMEOUT_SECONDS = 20.0
    client.PUBLISH_BOUND_SECONDS = aio.PUBLISH_BOUND_SECONDS = MAX_WAIT_SECONDS
