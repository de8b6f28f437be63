"""Escaping of a worker's log, so that no text from a message can forge a record.

Anyone who may publish to the broker chooses texts that are logged, by Celery too: names, ids, arguments of remote
control. A line break would start an apparent new record; other control characters could hide one in a terminal.
"""

from __future__ import annotations

import copy
import logging
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:

    class _Logging:
        """The part of Celery's class in use here, which has no types."""

        def setup_handlers(self, logger: logging.Logger, *args: Any, **options: Any) -> logging.Logger: ...
else:
    from celery.app.log import Logging as _Logging

INDENT: Final = "  "


class EscapingLogging(_Logging):
    """Celery's logging set-up of a worker, with an `EscapingFormatter` on each handler."""

    def setup_handlers(self, logger: logging.Logger, *args: Any, **options: Any) -> logging.Logger:
        """Add Celery's handler to ``logger`` unless it already has one."""
        before = set(logger.handlers)
        super().setup_handlers(logger, *args, **options)
        for handler in set(logger.handlers) - before:
            handler.setFormatter(EscapingFormatter(handler.formatter or logging.Formatter()))
        return logger


class EscapingFormatter(logging.Formatter):
    """Wraps a formatter, keeping the message on one line and indenting the lines of a traceback."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        """Format a record so that only its first line begins in the first column."""
        shown = copy.copy(record)
        shown.msg, shown.args = escaped(record.getMessage()), None
        if record.exc_info and not record.exc_text:
            shown.exc_text = self._formatter.formatException(record.exc_info)
        if shown.exc_text:
            shown.exc_text = "\n".join(INDENT + escaped(line) for line in shown.exc_text.splitlines())
        return self._formatter.format(shown)


def escaped(text: str) -> str:
    """Return ``text`` with unprintable characters (line breaks, control characters) as Python escapes."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
