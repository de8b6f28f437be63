"""What a worker's main process does in Redis every few seconds is tried again, whatever it met."""

from __future__ import annotations

import logging
import threading
from queue import SimpleQueue

import pytest

from api_client import CacheUnavailable
from refresher.worker.periodic import Periodic, in_redis
from tests.support.waiting import MAX_WAIT_SECONDS


@pytest.mark.parametrize(
    ("error", "has_traceback"),
    [(CacheUnavailable("Redis is down"), False), (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "of others"), True)],
)
def test_a_failure_is_logged_once_and_tried_again(
    error: Exception, has_traceback: bool, caplog: pytest.LogCaptureFixture
) -> None:
    tried: SimpleQueue[int] = SimpleQueue()
    answers = iter([error, error, None])

    def act(_: object) -> None:
        tried.put(1)
        answer = next(answers, None)
        if answer is not None:
            raise answer

    periodic = Periodic("keep up the tags", 0.001, in_redis("redis://127.0.0.1:1/0", act))
    with caplog.at_level(logging.WARNING, "refresher"):
        periodic.start()
        for _ in range(4):
            tried.get(timeout=MAX_WAIT_SECONDS)
        periodic.stop()
    (record,) = caplog.records
    assert record.getMessage() == f"could not keep up the tags ({error}); retrying"
    assert bool(record.exc_info) == has_traceback


def test_a_second_sigterm_within_the_first_does_not_block(monkeypatch: pytest.MonkeyPatch) -> None:
    periodic = Periodic("keep up the tags", 60.0, lambda _: None)
    notify_all = threading.Condition.notify_all

    def interrupted(condition: threading.Condition) -> None:
        if threading.current_thread() is first:
            monkeypatch.setattr(threading.Condition, "notify_all", notify_all)
            periodic.stop()
        notify_all(condition)

    def handle() -> None:
        monkeypatch.setattr(threading.Condition, "notify_all", interrupted)
        periodic.stop()

    first = threading.Thread(target=handle, daemon=True)
    first.start()
    first.join(MAX_WAIT_SECONDS)
    assert not first.is_alive()
