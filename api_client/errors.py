"""Errors of the reader, under one base.

::

    CacheError
    ├── InvalidQuery        the name or the params are wrong; found before any network
    ├── RefreshFailed       the load failed and nothing may be served instead (.kind, .attempts)
    │   └── UnknownQuery    no worker has registered this query and version
    ├── WaitTimeout         no value satisfied the read within the timeout (.waited_seconds, .state)
    ├── CacheUnavailable    Redis did not answer, or answered that it can't; or the client is closed
    ├── DecodeError         the value does not fit the requested type, or can't be decoded
    ├── TriggerFailed       `refresh()` could not hand the refresh to the broker
    └── ConfigurationError  a setting is wrong (.variable, .allowed)

Errors of redis-py are kept as ``__cause__``.
"""

from __future__ import annotations

import copy
from typing import Any, TypeVar

E = TypeVar("E", bound=BaseException)


class CacheError(Exception):
    """Base of all errors of this package. ``query`` names the query, if there is one."""

    def __init__(self, message: str = "", *, query: str | None = None) -> None:
        super().__init__(message)
        self.query = query

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors are pickled on their way out of a pool. By default unpickling calls the class with only the message,
        # which is not enough for most of them.
        return _remade, (type(self), self.args), self.__dict__


def _remade(kind: type[CacheError], args: tuple[Any, ...]) -> CacheError:
    error = kind.__new__(kind)
    error.args = args
    return error


def twin(error: E) -> E:
    """Return an equal error for another caller, with the same type, attributes and cause, without a traceback.

    Each raise adds to an error's traceback, so one error for many callers would grow with each of them. Another
    package's error that can't be copied is returned itself.
    """
    try:
        other = copy.copy(error)
    except Exception:  # noqa: BLE001 - its class decides what that raises
        return error
    if hasattr(other, "__notes__"):
        other.__notes__ = list(other.__notes__)
    other.__cause__ = error.__cause__
    other.__suppress_context__ = error.__suppress_context__
    return other


class InvalidQuery(CacheError, ValueError):
    """The query's name, its version, its params or an option of the call is wrong; nothing was sent.

    From `writes` it may also mean that the session's bookmarks can't be kept; then everything is written, and
    invalidated without them.
    """


class RefreshFailed(CacheError):
    """The refresh failed, and there is no value within its grace to serve.

    ``kind`` classifies the failure (see `docs/reference/errors.md`), ``attempts`` is the number of loads tried,
    ``retry_after_seconds`` the time until readers may trigger again. ``hint`` ends the message.
    """

    query: str

    def __init__(
        self, query: str, kind: str, attempts: int, retry_after_seconds: float, hint: str = "see `refresher dead list`"
    ) -> None:
        super().__init__(
            f"the refresh of {query!r} failed ({kind}) after {attempts} attempt{'' if attempts == 1 else 's'}; "
            f"retry allowed in {retry_after_seconds:.1f} s: {hint}",
            query=query,
        )
        self.kind: str = kind
        self.attempts: int = attempts
        self.retry_after_seconds = retry_after_seconds
        self.hint: str = hint


class UnknownQuery(RefreshFailed):
    """No worker has registered this query and version; perhaps a typo, or a worker of another release."""

    def __init__(self, query: str, version: int, attempts: int = 1, retry_after_seconds: float = 0.0) -> None:
        super().__init__(query, "unknown_query", attempts, retry_after_seconds)
        unknown = f"no worker has registered the query {query!r}, version {version}: is the name right?"
        self.args: tuple[Any, ...] = (f"{unknown} `refresher queries` lists them in a worker's environment",)
        self.version = version


class WaitTimeout(CacheError, TimeoutError):
    """No value satisfied the read within the caller's timeout.

    ``state`` is the lease record's state as this read last saw it, perhaps a second ago. ``hint`` ends the message and
    tells what to look at.
    """

    query: str

    def __init__(self, query: str, waited_seconds: float, state: str, hint: str = "see `refresher status`") -> None:
        message = f"timed out after {waited_seconds:.2f} s waiting for {query!r} (last lease state: {state})"
        super().__init__(f"{message}: {hint}", query=query)
        self.waited_seconds: float = waited_seconds
        self.state: str = state


class CacheUnavailable(CacheError, ConnectionError):
    """Redis is unavailable: refused, timed out, out of memory, read-only, or the breaker is open.

    It is also raised if the client is closed and there is no value to read.
    """

    def about(self, query: str) -> CacheUnavailable:
        """Return a separate error about ``query`` for another call with the same failure."""
        other = twin(self)
        other.query = query
        return other


class DecodeError(CacheError, ValueError):
    """The cached value does not fit ``type=``, or its payload is broken. The entry stays as it is."""


class TriggerFailed(CacheError):
    """An explicit `refresh()` could not be published in time."""


class ConfigurationError(CacheError, ValueError):
    """A setting is wrong; the message has the variable, the value (never a secret) and the allowed values."""

    def __init__(self, variable: str, shown: str, allowed: str) -> None:
        super().__init__(f"{variable}={shown} is not valid: {allowed}")
        self.variable: str = variable
        self.shown: str = shown
        self.allowed: str = allowed
