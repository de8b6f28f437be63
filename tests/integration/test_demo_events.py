"""The demo's receiver of the workers' events, on a real broker."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from refresher.demo.worker_events import WorkerEvents

if TYPE_CHECKING:
    from refresher.embedded import RedisServer


def test_closed_before_its_thread_has_begun_it_ends_without_a_word(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Ctrl-C may come within start(), while the thread is only being made: its connection is gone when it runs."""
    events = WorkerEvents(redis_server.url(), "cache")
    events.close()
    with caplog.at_level(logging.ERROR):
        events._run()
    assert not caplog.records
