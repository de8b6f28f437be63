"""Terms of a loaded value: how long it lives, and what it depends on; the query's, where its result sets none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from api_client.config.durations import Duration, seconds
from api_client.protocol.tags import check_tags
from refresher.errors import LoadFailed, text_of
from refresher.queries import MAX_SECONDS, Query
from refresher.results import Result

HANDOFF_SECONDS: Final = 5.0
_SIZED: Final[tuple[Any, ...]] = (str, bytes, list, tuple, dict, set, frozenset)


@dataclass(frozen=True, slots=True)
class Terms:
    """The value itself, and its terms. Durations in seconds."""

    value: Any
    ttl_seconds: float
    grace_seconds: float
    tags: tuple[str, ...] = ()

    @property
    def hard_ttl_seconds(self) -> float:
        """For how long Redis keeps the entry: TTL and grace; only for seconds where it is never cached."""
        return self.ttl_seconds + self.grace_seconds if self.ttl_seconds else HANDOFF_SECONDS


def terms_of(query: Query, returned: Any, params: dict[str, Any]) -> Terms:
    """Return the terms of what a loader returned.

    Raises:
        LoadFailed: a `Result` or the query's tags function has set wrong ones, or raised.
    """
    result = returned if isinstance(returned, Result) else Result(returned)
    ttl_seconds = query.ttl_seconds
    if result.ttl is not None:
        ttl_seconds = _duration(query, "ttl", result.ttl)
    elif _is_negative(query, result) and query.negative_ttl_seconds is not None:
        ttl_seconds = query.negative_ttl_seconds
    grace_seconds = query.grace_seconds if result.grace is None else _duration(query, "grace", result.grace)
    # What is never cached is in no index.
    tags = _tags_of(query, result, params) if ttl_seconds else ()
    return Terms(result.value, ttl_seconds, grace_seconds, tags)


def _duration(query: Query, name: str, given: Duration) -> float:
    try:
        duration_seconds = seconds(given)
    except ValueError as error:
        raise _wrong(query, f"{name}={given!r:.80}: {error}") from error
    if duration_seconds > MAX_SECONDS:
        raise _wrong(query, f"{name}={given!r:.80}: allowed is at most ten years")
    return duration_seconds


def _is_negative(query: Query, result: Result) -> bool:
    if not (result.negative is None or isinstance(result.negative, bool)):
        raise _wrong(query, f"negative={result.negative!r:.80}: allowed are True, False and None")
    if result.negative and query.negative_ttl_seconds is None:
        raise _wrong(query, "negative=True: allowed where the query has a negative_ttl")
    if result.negative is not None:
        return result.negative
    return result.value is None or _is_empty(result.value)


def _is_empty(value: Any) -> bool:
    """Return whether a value has a length of 0, by the builtin's own method: that of a subclass may do anything."""
    kind = next((one for one in _SIZED if isinstance(value, one)), None)
    return kind is not None and kind.__len__(value) == 0


def _tags_of(query: Query, result: Result, params: dict[str, Any]) -> tuple[str, ...]:
    try:
        own = check_tags(result.tags)
        if query.tags is None:
            if own:
                raise ValueError("a Result's tags are allowed where the query declares some: @query(tags=[])")
            return ()
        of_query = query.tags if isinstance(query.tags, tuple) else check_tags(query.tags(result.value, **params))
        return check_tags((*of_query, *own)) if own else of_query
    except Exception as error:
        raise LoadFailed("tags", f"tags of {query.name!r}: {text_of(error)}", is_transient=False) from error


def _wrong(query: Query, message: str) -> LoadFailed:
    return LoadFailed("result", f"the Result of {query.name!r}: {message}", is_transient=False)
