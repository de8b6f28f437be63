"""The demo's receiver of the workers' events, on a real broker."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from refresher.demo.worker_events import WorkerEvents
from refresher.embedded import free_port

if TYPE_CHECKING:
    from refresher.embedded import RedisServer


def test_it_listens_to_the_demo_s_broker_whatever_the_environment_says(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CELERY_BROKER_URL", f"redis://127.0.0.1:{free_port()}/0")  # an application's own, say
    events = WorkerEvents(redis_server.url(), "demo-test")
    try:
        events.start()
    finally:
        events.close()


def test_closed_before_its_thread_has_begun_it_ends_without_a_word(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Ctrl-C may come within start(), while the thread is only being made: its connection is gone when it runs."""
    events = WorkerEvents(redis_server.url(), "cache")
    events.close()
    with caplog.at_level(logging.ERROR):
        events._run()
    assert not caplog.records
