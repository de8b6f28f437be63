"""Escaping of a worker's log: no text from a message can forge a record.

Whoever may publish to the broker chooses texts that are logged, by Celery too: names, ids, arguments of remote control.
A line break in one would begin what looks like another record; other control characters would hide one from a terminal.
"""

from __future__ import annotations

import copy
import logging
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:

    class _Logging:
        """The part of Celery's class that is used; it has no types."""

        def setup_handlers(self, logger: logging.Logger, *args: Any, **options: Any) -> logging.Logger: ...
else:
    from celery.app.log import Logging as _Logging

INDENT: Final = "  "


class EscapingLogging(_Logging):
    """Celery's set-up of a worker's logging, with an `EscapingFormatter` on each handler."""

    def setup_handlers(self, logger: logging.Logger, *args: Any, **options: Any) -> logging.Logger:
        """Add Celery's handler to ``logger``, unless it has one of its own."""
        before = set(logger.handlers)
        super().setup_handlers(logger, *args, **options)
        for handler in set(logger.handlers) - before:
            handler.setFormatter(EscapingFormatter(handler.formatter or logging.Formatter()))
        return logger


class EscapingFormatter(logging.Formatter):
    """Formats with another formatter; the message is kept on one line, and the lines of a traceback are indented."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record; only its first line begins in the first column."""
        shown = copy.copy(record)
        shown.msg, shown.args = escaped(record.getMessage()), None
        if record.exc_info and not record.exc_text:
            shown.exc_text = self._formatter.formatException(record.exc_info)
        if shown.exc_text:
            shown.exc_text = "\n".join(INDENT + escaped(line) for line in shown.exc_text.splitlines())
        return self._formatter.format(shown)


def escaped(text: str) -> str:
    """Return ``text`` with all that is not printable (line breaks, control characters) as Python's escapes."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
