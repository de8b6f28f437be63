"""A worker's log: no line is forged, and a rejected message is described without its content."""

from __future__ import annotations

import io
import logging
from collections import Counter
from collections.abc import Iterator

import pytest

from refresher.flow.ports import DropReason
from refresher.settings import WorkerSettings
from refresher.worker.app import make_app
from refresher.worker.celery_fixes.message_guard import LINES, LINES_SECONDS, RateLimitedRejectLog, Rejection

FORGED = "x\n[2026-11-22 10:00:00,000: ERROR/MainProcess] forged"
ESCAPED = repr(FORGED)[1:-1]


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture(params=["root", "task"])
def logger(request: pytest.FixtureRequest, stream: io.StringIO) -> Iterator[logging.Logger]:
    """Return a logger set up like those of a worker."""
    made = logging.Logger("made")
    log = make_app(WorkerSettings()).log
    formatter = {} if request.param == "root" else {"formatter": __import__("celery.app.log").app.log.TaskFormatter}
    log.setup_handlers(made, stream, "[%(levelname)s] %(message)s", colorize=False, **formatter)
    return made


@pytest.mark.parametrize("args", [(FORGED,), ("%s", FORGED), ("%(a)s", {"a": FORGED})])
def test_a_message_is_one_line(logger: logging.Logger, stream: io.StringIO, args: tuple[object, ...]) -> None:
    logger.error(*args)
    assert stream.getvalue() == f"[ERROR] {ESCAPED}\n"


@pytest.mark.parametrize("character", ["\r", "\x1b", "\x00", "\x85", "\u2028", "\u202e", "\ud800"])
def test_control_characters_are_escaped(logger: logging.Logger, stream: io.StringIO, character: str) -> None:
    logger.error("a%sb δ \\", character)
    assert stream.getvalue() == f"[ERROR] a{repr(character)[1:-1]}b δ \\\n"


def test_the_lines_of_a_traceback_are_indented(logger: logging.Logger, stream: io.StringIO) -> None:
    try:
        raise ValueError(FORGED)
    except ValueError:
        logger.exception("failed")
    first, *others = stream.getvalue().splitlines()
    assert first == "[ERROR] failed"
    assert others[0] == "  Traceback (most recent call last):"
    assert others[-1] == "  [2026-11-22 10:00:00,000: ERROR/MainProcess] forged"
    assert all(line.startswith("  ") for line in others)


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
