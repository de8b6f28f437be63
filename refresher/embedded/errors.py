"""Errors of the embedded servers, under one base.

::

    EmbeddedServerError
    ├── ServerMissing        no program to run: a package is not installed
    └── ServerDidNotStart    it was started, and ended early or did not answer in time

The messages are meant for the user and say what to do. No message holds a password.
"""

from __future__ import annotations

from refresher.errors import RefresherError


class EmbeddedServerError(RefresherError):
    """Base of all errors of this package."""


class ServerMissing(EmbeddedServerError):
    """There is no program to run; ``what`` names it, and ``remedy`` tells how to get it."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}: {remedy}")


class ServerDidNotStart(EmbeddedServerError):
    """A process was started and ended early, or did not answer in time. ``log_tail`` is the end of its log."""

    def __init__(self, what: str, problem: str, log_tail: str = "") -> None:
        tail = f"; the end of its log:\n{log_tail}" if log_tail else "; its log is empty"
        super().__init__(f"{what} did not start: {problem}{tail}")
