"""Validation of read options, before anything is sent."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, TypedDict, TypeGuard

from api_client.config.durations import Duration, seconds
from api_client.config.spelling import suggestion
from api_client.errors import InvalidQuery
from api_client.protocol.model import Invalidation, MinGeneration
from api_client.protocol.params import plain
from api_client.read.evaluate import ANY, Freshness

MAX_BOOKMARKS: Final = 16
MAX_BOOKMARK_CHARACTERS: Final = 1_024
MAX_REPLICAS: Final = 1_000


class QueryOptions(TypedDict, total=False):
    """The keywords of a read through a handle; `CacheClient.get` explains them."""

    max_age: Duration | None
    fresh: bool
    min_generation: MinGeneration
    min_bookmarks: Collection[str]
    timeout: Duration | None


class ReadOptions(QueryOptions, total=False):
    """The keywords of every other read."""

    version: int


_OPTIONS: Final = frozenset(ReadOptions.__annotations__)
_NOT_OF_FRESHNESS: Final = frozenset({"version", "timeout"})


def parse_freshness(query: str, options: ReadOptions, *, of_batch: bool = False) -> Freshness:
    """Return the requirements of a read, or with ``of_batch`` of a batch, where ``query`` is the call's name.

    Raises:
        InvalidQuery: an option is wrong or unknown; the message names what is allowed.
    """
    if not options:
        return ANY
    if not options.keys() <= _OPTIONS:
        raise _unknown_option(query, min(options.keys() - _OPTIONS), of_batch=of_batch)
    if options.keys() <= _NOT_OF_FRESHNESS:
        return ANY
    max_age, bookmarks = options.get("max_age"), options.get("min_bookmarks")
    generation = plain(options.get("min_generation", 0))
    return Freshness(
        max_age_seconds=None if max_age is None else parse_duration(query, "max_age", max_age),
        fresh=parse_flag(query, "fresh", options.get("fresh", False)),
        min_generation=_generation(query, generation, plain(options.get("version", 1))),
        min_bookmarks=frozenset(() if bookmarks is None else parse_bookmarks(query, bookmarks)),
    )


def _unknown_option(query: str, name: str, *, of_batch: bool) -> InvalidQuery:
    if of_batch:
        meant = suggestion(name, ReadOptions.__annotations__)
        return InvalidQuery(f"{query}(): no option {name!r}; {meant} (A type is that of one item: see QueryCall)")
    meant = suggestion(name, (*ReadOptions.__annotations__, "type", "default"))
    more = "(Only `get` takes a default. Params are one mapping, the second argument)"
    return InvalidQuery(f"{query!r}: no option {name!r}; {meant} {more}", query=query)


def _generation(query: str, given: MinGeneration, version: int) -> int:
    """Return the number for ``version``, or for a version that was not invalidated the largest, so that it reloads."""
    by_version = given.generations if isinstance(given, Invalidation) else given
    numbers = [*by_version.values()] if isinstance(by_version, Mapping) else [by_version]
    versions = [*by_version] if isinstance(by_version, Mapping) else []
    if not numbers or not all(map(_is_whole, [*numbers, *versions])):
        raise InvalidQuery(
            f"min_generation={given!r:.100}: expected an Invalidation, its generations, or one of them", query=query
        )
    if not isinstance(by_version, Mapping):
        return by_version
    return by_version.get(version, max(numbers)) if _is_whole(version) else 0  # its key refuses a wrong version


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def parse_flag(query: str, option: str, value: object) -> bool:
    """Return a boolean option. Text is refused, since "no" would be true as well.

    Raises:
        InvalidQuery: the value is not a bool.
    """
    flag = plain(value)
    if not isinstance(flag, bool):
        raise InvalidQuery(f"{option}={value!r:.40} of {query!r}: expected True or False", query=query)
    return flag


def parse_duration(query: str, option: str, value: Duration) -> float:
    """Return a duration in seconds.

    Raises:
        InvalidQuery: the value is not a duration.
    """
    try:
        return seconds(value)
    except ValueError as error:
        raise InvalidQuery(f"{option} of {query!r}: {error}", query=query) from error


def parse_bookmarks(query: str, bookmarks: Collection[str]) -> tuple[str, ...]:
    """Return the graph's bookmarks, checked for use in a script.

    Raises:
        InvalidQuery: they are not a collection of at most 16 strings of 1 to 1,024 printable ASCII characters.
    """
    if isinstance(bookmarks, str) or not isinstance(bookmarks, Collection) or len(bookmarks) > MAX_BOOKMARKS:
        raise InvalidQuery(
            f"bookmarks for {query!r}: expected at most {MAX_BOOKMARKS} strings (pass `Bookmarks.raw_values`)",
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


def check_replicas(query: str, replicas: object) -> None:
    """Check the number of replicas that an invalidation waits for.

    Raises:
        InvalidQuery: it is not a whole number from 0 to 1,000.
    """
    if not _is_whole(replicas) or replicas > MAX_REPLICAS:
        raise InvalidQuery(
            f"replicas={replicas!r:.40} of {query!r}: expected a whole number, 0 to {MAX_REPLICAS}", query=query
        )
