"""The options of a call, checked before anything is sent."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, TypedDict

from api_client.durations import Duration, seconds
from api_client.errors import InvalidQuery
from api_client.judging import PLAIN, Floor

MAX_BOOKMARKS: Final = 16
MAX_BOOKMARK_CHARACTERS: Final = 1_024


class ReadOptions(TypedDict, total=False):
    """The keywords that every read takes; `CacheClient.get` explains them."""

    version: int
    max_age: Duration | None
    fresh: bool
    min_generation: int
    min_bookmarks: Collection[str]
    timeout: Duration | None


_OPTIONS: Final = frozenset(ReadOptions.__annotations__)
_OF_NO_FLOOR: Final = frozenset({"version", "timeout"})


def floor_of(query: str, options: ReadOptions) -> Floor:
    """Return what the call asks of an entry.

    Raises:
        InvalidQuery: an option is wrong, or there is none of its name; the message says what is allowed.
    """
    if not options:
        return PLAIN
    if not options.keys() <= _OPTIONS:
        unknown = options.keys() - _OPTIONS
        raise InvalidQuery(
            f"{query!r}: no option {min(unknown)!r}; allowed are {', '.join(ReadOptions.__annotations__)}. "
            "(Params are one mapping, the second argument)",
            query=query,
        )
    if options.keys() <= _OF_NO_FLOOR:
        return PLAIN
    min_generation = options.get("min_generation", 0)
    if isinstance(min_generation, bool) or not isinstance(min_generation, int) or min_generation < 0:
        raise InvalidQuery(
            f"min_generation={min_generation!r}: allowed is the generation of an invalidation", query=query
        )
    max_age = options.get("max_age")
    return Floor(
        max_age_seconds=None if max_age is None else duration_of(query, "max_age", max_age),
        fresh=bool(options.get("fresh", False)),
        min_generation=min_generation,
        min_bookmarks=frozenset(bookmarks_of(query, options.get("min_bookmarks") or ())),
    )


def duration_of(query: str, option: str, value: Duration) -> float:
    """Return a duration in seconds.

    Raises:
        InvalidQuery: it is none.
    """
    try:
        return seconds(value)
    except ValueError as error:
        raise InvalidQuery(f"{option} of {query!r}: {error}", query=query) from error


def bookmarks_of(query: str, bookmarks: Collection[str]) -> tuple[str, ...]:
    """Return the graph's bookmarks as they may go into a script.

    Raises:
        InvalidQuery: not a sequence of at most 16 texts of 1 to 1,024 printable ASCII characters.
    """
    if isinstance(bookmarks, str) or not isinstance(bookmarks, Collection) or len(bookmarks) > MAX_BOOKMARKS:
        raise InvalidQuery(
            f"bookmarks for {query!r}: allowed are at most {MAX_BOOKMARKS} texts (of the driver's Bookmarks, "
            "the .raw_values)",
            query=query,
        )
    for bookmark in bookmarks:
        if (
            not isinstance(bookmark, str)
            or not 0 < len(bookmark) <= MAX_BOOKMARK_CHARACTERS
            or not (bookmark.isascii() and bookmark.isprintable())
        ):
            raise InvalidQuery(
                f"bookmarks for {query!r}: each is text of 1 to {MAX_BOOKMARK_CHARACTERS} printable ASCII characters",
                query=query,
            )
    return tuple(bookmarks)
