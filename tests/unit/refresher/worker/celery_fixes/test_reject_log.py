"""Rejected messages: all are counted, and the log does not fill a disk."""

from __future__ import annotations

from collections import Counter

import pytest

from refresher.flow.ports import DropReason
from refresher.worker.celery_fixes.message_guard import (
    LINES,
    LINES_SECONDS,
    RateLimitedRejectLog,
    Rejection,
)


@pytest.fixture
def counted() -> Counter[DropReason]:
    return Counter()


@pytest.fixture
def now() -> list[float]:
    """Seconds; a test moves them."""
    return [100.0]


@pytest.fixture
def rejected(counted: Counter[DropReason], now: list[float]) -> RateLimitedRejectLog:
    return RateLimitedRejectLog(lambda reason: counted.update([reason]), monotonic=lambda: now[0])


def test_a_few_rejected_messages_have_one_log_line_each(
    rejected: RateLimitedRejectLog, counted: Counter[DropReason], caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(LINES):
        rejected.report(Rejection(DropReason.BODY, f"its body is number {number}"))
    assert caplog.messages == [f"rejected a message: its body is number {number}" for number in range(LINES)]
    assert counted == {DropReason.BODY: LINES}


def test_thousands_of_rejected_messages_have_a_few_log_lines_and_are_all_counted(
    rejected: RateLimitedRejectLog, counted: Counter[DropReason], now: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(10_000):
        rejected.report(Rejection(DropReason.NO_ENVELOPE, "it has no readable envelope"))
    assert len(caplog.messages) == LINES + 1
    assert caplog.messages[-1] == "further rejected messages (no_envelope) are counted but not logged"
    now[0] += LINES_SECONDS
    rejected.report(Rejection(DropReason.NO_ENVELOPE, "one more"))
    assert caplog.messages[LINES + 1 :] == [
        f"{10_000 - LINES} further messages were rejected: no_envelope",
        "rejected a message: one more",
    ]
    assert counted == {DropReason.NO_ENVELOPE: 10_001}


def test_a_flood_of_one_kind_of_rejection_hides_no_other(
    rejected: RateLimitedRejectLog, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(100):
        rejected.report(Rejection(DropReason.BODY, "its body"))
    rejected.report(Rejection(DropReason.NO_TASK, "it names no task"))
    assert caplog.messages[-1] == "rejected a message: it names no task"


def test_rejections_that_were_all_logged_are_not_summarised(
    rejected: RateLimitedRejectLog, now: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    rejected.report(Rejection(DropReason.BODY, "one"))
    now[0] += LINES_SECONDS
    rejected.report(Rejection(DropReason.BODY, "two"))
    assert caplog.messages == ["rejected a message: one", "rejected a message: two"]
