"""Results of reads and invalidations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec

from api_client.protocol.entry import Header

T = TypeVar("T")


class EntryState(StrEnum):
    """State of what a read returned: a fresh value, a stale one, or after a MISS one that it waited for.

    STALE also for a value that was waited for, where a soft invalidation came while it was loaded: its load began
    before the invalidation, so it may be older than what a read that began after that expects. Another refresh is
    under way; ``min_generation`` waits for it.
    """

    FRESH = "fresh"
    STALE = "stale"
    MISS = "miss"


class RefreshState(StrEnum):
    """Action of a read on a refresh: none, triggered, suppressed (one is under way), or dropped."""

    NONE = "none"
    TRIGGERED = "triggered"
    SUPPRESSED = "suppressed"
    DROPPED = "dropped"


class ReadResult(msgspec.Struct, frozen=True, gc=False):
    """Result of a read: the value, its header, what was found and done, and ``now_us``, Redis' time then."""

    value: Any
    header: Header
    state: EntryState
    refresh: RefreshState
    now_us: int


class NoDefault:
    """Type of the sentinel for "no default": None is a value."""

    def __repr__(self) -> str:
        return "<no default>"


NO_DEFAULT: Final = NoDefault()


class Entry(msgspec.Struct, Generic[T], frozen=True):
    """The value of a read, with all that the cache knows of it. Durations in seconds.

    ``age`` counts from the start of the load. ``ttl_remaining`` is negative past the soft expiry, and not positive once
    invalidated; ``delta`` is the mean lead time of a refresh, ``beta`` the effective β, ``degree`` that of the query's
    node (0: not known). ``token`` grows with each refresh of this key while its entry or record is there; after that it
    begins at Redis' clock, which may have been set back. The value was read after every invalidation below ``token``.
    ``generation`` is the number of the last invalidation; 0 where none has come since the refresh before this one.
    """

    value: T
    state: EntryState
    refresh: RefreshState
    age: float
    ttl_remaining: float
    delta: float
    beta: float
    degree: int
    token: int
    generation: int
    bookmarks: tuple[str, ...]

    @classmethod
    def of(cls, result: ReadResult) -> Entry[T]:
        """Describe a value by the header that it came with, at the time of its read."""
        header = result.header
        return cls(
            value=result.value,
            state=result.state,
            refresh=result.refresh,
            age=max(0.0, (result.now_us - header.read_started_us) / 1e6),
            ttl_remaining=header.left_seconds(result.now_us),
            delta=header.delta.mean,
            beta=header.beta,
            degree=header.degree,
            token=header.token,
            generation=header.generation,
            bookmarks=header.bookmarks,
        )


@dataclass(frozen=True, slots=True)
class Invalidation:
    """An invalidation that Redis has acknowledged.

    ``generation`` is its number for the caller's own version, and ``generations`` has the number of every version
    that was invalidated; the whole object, ``generations`` or one number goes to ``min_generation=``. ``replicated``:
    whether the requested number of replicas confirmed all of it in time (None: none was requested). Without that, a
    failover may lose it.
    """

    generation: int
    replicated: bool | None
    generations: Mapping[int, int] = field(hash=False)


@dataclass(frozen=True, slots=True)
class TagInvalidation:
    """An invalidation of tags.

    ``entries`` is how many keys were invalidated; one with several of the tags may count several times, and one whose
    entry has expired counts as well. Without ``is_finished`` (``wait=False``) a worker invalidates them within seconds.
    """

    entries: int
    is_finished: bool


MinGeneration: TypeAlias = int | Mapping[int, int] | Invalidation
"""An invalidation, its numbers by version, or one number."""
