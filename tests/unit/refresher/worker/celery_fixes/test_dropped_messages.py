"""Messages that are dropped: all are counted, and the log does not fill a disk."""

from __future__ import annotations

from collections import Counter

import pytest

from refresher.worker.celery_fixes.message_guard import LINES, LINES_SECONDS, DropReason, RateLimitedRejectLog


@pytest.fixture
def counted() -> Counter[DropReason]:
    return Counter()


@pytest.fixture
def now() -> list[float]:
    """Seconds; a test moves them."""
    return [100.0]


@pytest.fixture
def dropped(counted: Counter[DropReason], now: list[float]) -> RateLimitedRejectLog:
    return RateLimitedRejectLog(lambda reason: counted.update([reason]), monotonic=lambda: now[0])


def test_a_few_have_a_line_each(
    dropped: RateLimitedRejectLog, counted: Counter[DropReason], caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(LINES):
        dropped.tell(DropReason.BODY, f"its body is number {number}")
    assert caplog.messages == [f"a message was dropped: its body is number {number}" for number in range(LINES)]
    assert counted == {DropReason.BODY: LINES}


def test_of_thousands_the_log_has_some_lines_and_all_are_counted(
    dropped: RateLimitedRejectLog, counted: Counter[DropReason], now: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(10_000):
        dropped.tell(DropReason.NO_ENVELOPE, "it has no readable envelope")
    assert len(caplog.messages) == LINES + 1
    assert caplog.messages[-1] == "more messages are dropped (no_envelope), and counted without a line each"
    now[0] += LINES_SECONDS
    dropped.tell(DropReason.NO_ENVELOPE, "one more")
    assert caplog.messages[LINES + 1 :] == [
        f"{10_000 - LINES} more messages were dropped: no_envelope",
        "a message was dropped: one more",
    ]
    assert counted == {DropReason.NO_ENVELOPE: 10_001}


def test_a_flood_of_one_kind_hides_no_other(dropped: RateLimitedRejectLog, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(100):
        dropped.tell(DropReason.BODY, "its body")
    dropped.tell(DropReason.NO_TASK, "it names no task")
    assert caplog.messages[-1] == "a message was dropped: it names no task"


def test_where_none_went_unsaid_nothing_is_said_of_them(
    dropped: RateLimitedRejectLog, now: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    dropped.tell(DropReason.BODY, "one")
    now[0] += LINES_SECONDS
    dropped.tell(DropReason.BODY, "two")
    assert caplog.messages == ["a message was dropped: one", "a message was dropped: two"]
