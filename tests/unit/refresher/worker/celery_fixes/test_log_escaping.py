"""A worker's log: one record is one line, whatever text is in it."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from refresher.settings import WorkerSettings
from refresher.worker.app import make_app

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
