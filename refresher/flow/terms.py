"""Terms of a loaded value: how long it lives, and what it depends on; the query's, where its result sets none.

One that is unchanged keeps its tags, and the terms that it had set itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from api_client.config.durations import Duration, seconds
from api_client.protocol.entry import Header, Revalidation
from api_client.protocol.params import plain
from api_client.protocol.tags import check_tags
from refresher.errors import LoadFailed, text_of
from refresher.queries import MAX_SECONDS, Loaded, Query
from refresher.results import UNCHANGED, Result

HANDOFF_SECONDS: Final = 5.0
MAX_VERSION_CHARACTERS: Final = 200
NONE_KEPT: Final = Revalidation()
_SIZED: Final[tuple[Any, ...]] = (str, bytes, list, tuple, dict, set, frozenset)


@dataclass(frozen=True, slots=True)
class Terms:
    """The value itself, and its terms. Durations in seconds."""

    value: Any
    ttl_seconds: float
    grace_seconds: float
    tags: tuple[str, ...] = ()
    revalidation: Revalidation = NONE_KEPT

    @property
    def is_unchanged(self) -> bool:
        """True where the entry's payload stays as it is."""
        return self.value is UNCHANGED

    @property
    def hard_ttl_seconds(self) -> float:
        """For how long Redis keeps the entry: TTL and grace; only for seconds where it is never cached."""
        return self.ttl_seconds + self.grace_seconds if self.ttl_seconds else HANDOFF_SECONDS


def terms_of(query: Query, loaded: Loaded, params: dict[str, Any], previous: Header | None = None) -> Terms:
    """Return the terms of what a loader returned; ``previous`` is the entry that it may have found unchanged.

    Raises:
        LoadFailed: a `Result` or the query's tags function has set wrong ones, or raised.
    """
    result = loaded.value if isinstance(loaded.value, Result) else Result(loaded.value)
    kept = _kept(query, previous) if result.value is UNCHANGED else NONE_KEPT
    own = Revalidation(
        _version_of(query, result, loaded, kept),
        kept.ttl_seconds if (ttl_seconds := _own_ttl(query, result)) is None else ttl_seconds,
        kept.grace_seconds if result.grace is None else _duration(query, "grace", result.grace),
    )
    ttl_seconds = query.ttl_seconds if own.ttl_seconds is None else own.ttl_seconds
    grace_seconds = query.grace_seconds if own.grace_seconds is None else own.grace_seconds
    # What is never cached is in no index.
    tags = _tags_of(query, result, params, previous) if ttl_seconds else ()
    return Terms(result.value, ttl_seconds, grace_seconds, tags, own if query.revalidates else NONE_KEPT)


def _kept(query: Query, previous: Header | None) -> Revalidation:
    if previous is None:
        raise _wrong(query, "UNCHANGED: allowed where the query is conditional, and there is a previous value")
    return previous.revalidation


def _version_of(query: Query, result: Result, loaded: Loaded, kept: Revalidation) -> Any:
    version = plain(result.version)
    if version is None:
        return kept.version if loaded.version is None else loaded.version
    if not query.conditional or query.version_cypher is not None:
        raise _wrong(query, "version=: allowed where the query is conditional, and has no version_cypher")
    is_number = isinstance(version, int) and not isinstance(version, bool) and abs(version) < 2**63
    if not (is_number or (isinstance(version, str) and len(version) <= MAX_VERSION_CHARACTERS)):
        allowed = f"text of at most {MAX_VERSION_CHARACTERS} characters, or a whole number of 64 bits"
        raise _wrong(query, f"version={version!r:.80}: allowed is {allowed}")
    return version


def _own_ttl(query: Query, result: Result) -> float | None:
    if result.ttl is not None:
        return _duration(query, "ttl", result.ttl)
    return query.negative_ttl_seconds if _is_negative(query, result) else None


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


def _tags_of(query: Query, result: Result, params: dict[str, Any], previous: Header | None) -> tuple[str, ...]:
    try:
        own = check_tags(result.tags)
        if query.tags is None:
            if own:
                raise ValueError("a Result's tags are allowed where the query declares some: @query(tags=[])")
            return ()
        if isinstance(query.tags, tuple):
            of_query = query.tags
        elif result.value is UNCHANGED:
            of_query = ()  # the function asks for the value
        else:
            of_query = check_tags(query.tags(result.value, **params))
        kept = previous.tags if previous is not None and result.value is UNCHANGED else ()
        return check_tags((*kept, *of_query, *own)) if kept or own else of_query
    except Exception as error:
        raise LoadFailed("tags", f"tags of {query.name!r}: {text_of(error)}", is_transient=False) from error


def _wrong(query: Query, message: str) -> LoadFailed:
    return LoadFailed("result", f"the Result of {query.name!r}: {message}", is_transient=False)
