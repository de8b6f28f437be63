"""The errors of a worker.

::

    api_client.CacheError
    └── api_client.ConfigurationError   a registration or a setting is wrong

    RefresherError
    ├── LoadFailed        a load failed, as `graph.failures` classified it (.kind, .is_transient)
    └── TransientFailure  for loaders to raise: retry later
"""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable
from typing import Any, Final

from api_client.protocol.lease import BookmarkFault

MAX_TEXT: Final = 500


class RefresherError(Exception):
    """Base of the errors of this package."""


class TransientFailure(RefresherError):
    """Raised by a loader if the next attempt may succeed."""


class LoadFailed(RefresherError):
    """A load has failed. It does not wrap the driver's error, which may hold live sessions and can't be pickled.

    Attributes:
        kind: a word for metrics, dead letters and readers, such as ``timeout`` or ``syntax``.
        is_transient: True if another attempt may succeed.
        max_attempts: the attempts after which this kind of failure is not retried; None for those of the settings.
        bookmarks: the part of the load's bookmarks in the failure.
        why: an explanation for readers beyond the kind, without params' values.
        place: file, line and function of the cause in the loader's code; "" if it is elsewhere. Set by `locate`.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        is_transient: bool,
        max_attempts: int | None = None,
        bookmarks: BookmarkFault = BookmarkFault.NONE,
        why: str = "",
    ) -> None:
        super().__init__(message)
        self.kind: str = kind
        self.is_transient: bool = is_transient
        self.max_attempts: int | None = max_attempts
        self.bookmarks: BookmarkFault = bookmarks
        self.why: str = why
        self.place: str = ""

    def locate(self, loader: Callable[..., Any]) -> None:
        """Set ``place`` to the innermost frame of the cause in the package of ``loader``."""
        if self.__cause__ is not None:
            module = getattr(inspect.unwrap(loader), "__module__", None) or ""
            self.place = place_of(self.__cause__, package=module.partition(".")[0])

    @property
    def shown(self) -> str:
        """The part that logs may show: kind, cause's type and place. The text may contain a param's value."""
        if self.__cause__ is None:
            return self.kind
        return f"{self.kind}: {type(self.__cause__).__name__}{self.place and f' at {self.place}'}"

    def __reduce__(self) -> tuple[object, ...]:
        options = {name: getattr(self, name) for name in ("is_transient", "max_attempts", "bookmarks", "why")}
        return functools.partial(LoadFailed, **options), (self.kind, str(self)), {"place": self.place}


def place_of(error: BaseException, *, package: str | None = None) -> str:
    """Return file, line and function of the innermost frame that an error has passed; "" for none.

    It takes the place of the traceback, whose text may quote params.

    Args:
        package: the name of a top-level package, to consider only its frames. Default: all frames.
    """
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if package in {None, str(frame.f_globals.get("__name__")).partition(".")[0]}:
            place = f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_qualname}"
    return place


def message_of(error: BaseException) -> str:
    """Return an error's message, whatever its own ``__str__`` does, with lone surrogates escaped."""
    try:
        message = str(error)
    except BaseException as own:  # noqa: BLE001 - its author's code
        message = f"(its message could not be read: {type(own).__name__})"
    return message.encode(errors="backslashreplace").decode()


def text_of(error: BaseException) -> str:
    """Return an error's type and the first 500 characters of its message.

    It may contain query text and values of params, so it is for the dead letter, not for a log.
    """
    return f"{type(error).__name__}: {message_of(error)[:MAX_TEXT]}"
