"""Validation of messages before Celery sees them, since anyone who may publish can write anything into one.

Celery trusts its messages: a body that is not a list ends the worker, a header of another type raises in the middle of
its bookkeeping, a line break in an id forges a log line, and the last part of a body names tasks to run next. So a
message to the refresh task has to look like one from Celery's own publisher. A rejection's text contains nothing of the
message.

`consumer` rejects such poison messages; `unreadable_envelopes` and the task drop what is no envelope or no refresh.
"""

from __future__ import annotations

import logging
import operator
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from api_client.protocol.messages import MAX_MESSAGE_BYTES, TASK_NAME
from refresher.flow.ports import DropReason
from refresher.worker.celery_fixes.unreadable_envelopes import UNREADABLE

log: Final = logging.getLogger(__name__)

MAX_ID: Final = 255
# Pauses between attempts take seconds; the rest allows for a sender's clock that is ahead.
MAX_ETA: Final = timedelta(days=1)
MAX_LIMIT_SECONDS: Final = 24 * 3600.0
LINES: Final = 5
LINES_SECONDS: Final = 10.0


class Rejection(NamedTuple):
    """Reason for keeping a message from Celery; ``text`` is for the log and contains nothing of the message."""

    reason: DropReason
    text: str


def validate_message(message: Any, *, refreshes_only: bool) -> Rejection | None:
    """Return the reason for keeping a message from Celery, or None.

    Args:
        message: a message of kombu.
        refreshes_only: True if the worker only refreshes. Otherwise messages of other tasks are left to Celery, unless
            they do not even name their task.
    """
    if message.content_type == UNREADABLE:
        return Rejection(DropReason.NO_ENVELOPE, "its properties can't be read")
    headers = message.headers
    if not isinstance(headers, Mapping):
        return Rejection(DropReason.HEADERS, "its headers are not a mapping")
    task = headers.get("task")
    if "task" not in headers and not refreshes_only:
        return _check_protocol_1(message)
    if not isinstance(task, str):
        return Rejection(DropReason.NO_TASK, "it names no task")
    if not _is_id(headers.get("id")):
        return Rejection(DropReason.NO_ID, "it has no id")
    if task != TASK_NAME:
        return Rejection(DropReason.OTHER_TASK, "it is for another task") if refreshes_only else None
    return _check_headers(headers) or _check_body(message)


def _check_protocol_1(message: Any) -> Rejection | None:
    try:
        body = message.payload
    except Exception as error:  # noqa: BLE001 - whatever a decoder raises
        return Rejection(DropReason.UNDECODABLE, f"its body can't be decoded: {type(error).__name__}")
    if not isinstance(body, Mapping) or not isinstance(body.get("task"), str):
        return Rejection(DropReason.NO_TASK, "it names no task")
    return Rejection(DropReason.PROTOCOL, "it is of protocol 1") if body["task"] == TASK_NAME else None


def _check_headers(headers: Mapping[str, Any]) -> Rejection | None:
    for name, is_right in HEADERS.items():
        if headers.get(name) is not None and not is_right(headers[name]):
            return Rejection(DropReason.HEADERS, f"its header {name!r} is wrong")
    return None


def _check_body(message: Any) -> Rejection | None:
    if message.content_type != "application/json" or message.content_encoding != "utf-8":
        return Rejection(DropReason.NOT_JSON, "it is not JSON in UTF-8")
    # Before decoding, which would take ten times the memory.
    if isinstance(message.body, str | bytes | bytearray | memoryview) and len(message.body) > MAX_MESSAGE_BYTES:
        return Rejection(DropReason.TOO_LARGE, f"its body is larger than {MAX_MESSAGE_BYTES} bytes")
    try:
        body = message.payload
    except Exception as error:  # noqa: BLE001 - whatever a decoder raises
        return Rejection(DropReason.UNDECODABLE, f"its body can't be decoded: {type(error).__name__}")
    if not isinstance(body, list) or len(body) != 3:
        return Rejection(DropReason.BODY, "its body is not [args, kwargs, embed]")
    args, kwargs, embed = body
    if not isinstance(args, list) or len(args) != 1 or kwargs != {}:
        return Rejection(DropReason.ARGUMENTS, "its arguments are not one")
    if not isinstance(embed, Mapping) or any(embed.values()):
        return Rejection(DropReason.CALLBACKS, "it names callbacks")
    return None


def _is_id(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_ID


def _is_printable(value: object) -> bool:
    # Celery logs it unescaped.
    return isinstance(value, str) and value.isprintable()


def _is_name(value: object) -> bool:
    return _is_id(value) and _is_printable(value)


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**31


def _time(value: object) -> datetime | None:
    try:
        at = datetime.fromisoformat(value)  # type: ignore[arg-type]
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        return None


def _is_near(value: object) -> bool:
    at = _time(value)
    return at is not None and at <= datetime.now(UTC) + MAX_ETA


def _are_limits(value: object) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(map(_is_limit, value))


def _is_limit(value: object) -> bool:
    # False for NaN, infinity, and integers beyond all floats, for which math.isfinite raises.
    return value is None or (type(value) in {int, float} and 0 < value <= MAX_LIMIT_SECONDS)  # type: ignore[operator]


# The headers that Celery reads, by type. None is always valid, as a publisher writes it for unused ones.
HEADERS: Final[Mapping[str, Callable[[object], bool]]] = {
    **dict.fromkeys(("id", "root_id", "parent_id", "group"), _is_name),
    **dict.fromkeys(("shadow", "origin", "argsrepr", "kwargsrepr", "lang"), _is_printable),
    **dict.fromkeys(("retries", "group_index", "replaced_task_nesting"), _is_count),
    **dict.fromkeys(("chain", "chord", "callbacks", "errbacks"), operator.not_),
    "eta": _is_near,
    "expires": lambda value: _time(value) is not None,
    "timelimit": _are_limits,
    "ignore_result": lambda value: isinstance(value, bool),
    "stamped_headers": lambda value: isinstance(value, list | tuple) and all(map(_is_name, value)),
    "stamps": lambda value: isinstance(value, Mapping),
}


class RateLimitedRejectLog:
    """Counts rejected messages, and logs the first few of each reason within ten seconds.

    Thousands may be rejected per second, and a line for each would fill the disk.

    Args:
        count: called for each message, with its reason.
        monotonic: the clock, in seconds.
    """

    def __init__(self, count: Callable[[DropReason], None], *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._count, self._monotonic = count, monotonic
        self._windows: dict[DropReason, _Window] = {}

    def report(self, rejection: Rejection) -> None:
        """Count a rejection, and log it unless enough of the same reason have been logged."""
        reason, text = rejection
        self._count(reason)
        now = self._monotonic()
        window = self._windows.get(reason)
        if window is None or now >= window.until:
            if window is not None and window.not_logged:
                log.error("%d further messages were rejected: %s", window.not_logged, reason.value)
            window = self._windows[reason] = _Window(now + LINES_SECONDS)
        window.rejected += 1
        if not window.not_logged:
            log.error("rejected a message: %s", text)
        elif window.not_logged == 1:
            log.error("further rejected messages (%s) are counted but not logged", reason.value)


@dataclass(slots=True)
class _Window:
    """The messages rejected for one reason within some seconds."""

    until: float
    rejected: int = 0

    @property
    def not_logged(self) -> int:
        return max(0, self.rejected - LINES)
