"""Messages that a worker drops: each is counted, and the log tells of as many as somebody can read."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from refresher.guard import DropReason

log: Final = logging.getLogger(__name__)

LINES: Final = 5
LINES_SECONDS: Final = 10.0


@dataclass(slots=True)
class _Lines:
    """What the log says of one reason within some seconds."""

    until: float
    dropped: int = 0

    @property
    def unsaid(self) -> int:
        """How many were dropped without a line."""
        return max(0, self.dropped - LINES)


class DroppedMessages:
    """Counts messages that were dropped, and logs the first few of each reason within ten seconds.

    Thousands of them are dropped in a second, and lines of each would fill a disk.

    Args:
        count: told of each, by its reason.
        monotonic: seconds.
    """

    def __init__(self, count: Callable[[DropReason], None], *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._count, self._monotonic = count, monotonic
        self._lines: dict[DropReason, _Lines] = {}

    def tell(self, reason: DropReason, text: str) -> None:
        """Tell of one; ``text`` is for the log, and shows nothing of the message."""
        self._count(reason)
        now = self._monotonic()
        lines = self._lines.get(reason)
        if lines is None or now >= lines.until:
            if lines is not None and lines.unsaid:
                log.error("%d more messages were dropped: %s", lines.unsaid, reason.value)
            lines = self._lines[reason] = _Lines(now + LINES_SECONDS)
        lines.dropped += 1
        if not lines.unsaid:
            log.error("a message was dropped: %s", text)
        elif lines.unsaid == 1:
            log.error("more messages are dropped (%s), and counted without a line each", reason.value)
