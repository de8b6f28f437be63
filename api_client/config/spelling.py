"""Misspelled names: the nearest known name, and the error for an unknown keyword."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from types import FunctionType
from typing import Final, ParamSpec, TypeVar, cast

import msgspec

from api_client.errors import ConfigurationError

P = ParamSpec("P")
T = TypeVar("T")

LIKE_IT: Final = 0.8  # the ratio of difflib; `person` is like `version` by 0.77


def nearest(name: str, known: Iterable[str], *, at_least: float = LIKE_IT) -> str | None:
    """Return the known name that ``name`` was probably meant to be, or None if it resembles none."""
    import difflib  # only needed for an error

    return next(iter(difflib.get_close_matches(name, sorted(known), n=1, cutoff=at_least)), None)


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return a hint, as text, for a name that is not known."""
    known = tuple(known)
    near = nearest(name, known)
    return f"expected {', '.join(known) or 'none'}" if near is None else f"did you mean {near}?"


def check_keywords(
    owner: str, given: Iterable[str], known: Iterable[str], settings: type[msgspec.Struct] | None = None
) -> None:
    """Check that a call has only known keywords. Values are not shown, since they may be secret.

    Args:
        owner: the name of the called object.
        settings: a class of settings that the call takes as ``settings=``; its fields are no keywords of the call.

    Raises:
        ConfigurationError: a keyword is unknown; names the first one and the nearest known name.
    """
    known = tuple(known)
    wrong = min(set(given).difference(known), default=None)
    if wrong is None:
        return
    meant = suggestion(wrong, known)
    if settings is not None and not nearest(wrong, known) and (field := nearest(wrong, settings.__struct_fields__)):
        meant = f"did you mean settings={settings.__name__}({field}=…)?"
    raise ConfigurationError(wrong, "…", f"{owner} has no such keyword; {meant}")


def names_keywords(settings: type[msgspec.Struct] | None = None) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Make a function raise a ConfigurationError with the nearest name for a wrong keyword, instead of a TypeError."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        code = cast("FunctionType", function).__code__
        known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> T:
            owner = type(args[0]).__name__ if code.co_name == "__init__" else code.co_name
            check_keywords(owner, kwargs, known, settings)
            return function(*args, **kwargs)

        return checked

    return decorate
