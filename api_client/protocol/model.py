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
    """State of a read's value: fresh, stale, or MISS if the read waited for it.

    An awaited value is STALE too if a soft invalidation came during its load: the load began before the invalidation,
    so the value may be older than a later read expects. Another refresh is in progress; ``min_generation`` waits for
    it.
    """

    FRESH = "fresh"
    STALE = "stale"
    MISS = "miss"


class RefreshState(StrEnum):
    """Effect of a read on refreshes: none, triggered, suppressed (one is in progress), or dropped."""

    NONE = "none"
    TRIGGERED = "triggered"
    SUPPRESSED = "suppressed"
    DROPPED = "dropped"


class ReadResult(msgspec.Struct, frozen=True, gc=False):
    """Result of a read: the value, its header, its state, the effect on refreshes, and Redis' time (``now_us``)."""

    value: Any
    header: Header
    state: EntryState
    refresh: RefreshState
    now_us: int


class NoDefault:
    """Type of the sentinel for "no default", since None is a value."""

    def __repr__(self) -> str:
        return "<no default>"


NO_DEFAULT: Final = NoDefault()


class Entry(msgspec.Struct, Generic[T], frozen=True):
    """The value of a read, with all that the cache knows about it. Durations in seconds.

    ``age`` counts from the start of the load. ``ttl_remaining`` is negative past the soft expiry, and zero or negative
    after an invalidation. ``delta`` is the mean lead time of a refresh, ``beta`` the effective β, ``degree`` the degree
    of the query's node (0: unknown). ``token`` grows with each refresh of this key while its entry or record exists;
    after that it starts at Redis' clock, which may have been set back. The value was read after every invalidation with
    a number below ``token``. ``generation`` is the number of the last invalidation; 0 if none has come since the
    previous refresh.
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
        """Make the entry of a read's result."""
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

    ``generation`` is its number for the caller's own version, and ``generations`` maps each invalidated version to its
    number. ``min_generation=`` takes the whole object, ``generations`` or one number. ``replicated`` is True if the
    requested number of replicas confirmed all of it in time, and None if no replicas were requested. A failover may
    lose an invalidation that is not replicated.
    """

    generation: int
    replicated: bool | None
    generations: Mapping[int, int] = field(hash=False)


@dataclass(frozen=True, slots=True)
class TagInvalidation:
    """An invalidation of tags.

    ``entries`` is the number of invalidated keys; a key with several of the tags may count several times, and a key
    whose entry has expired counts too. If ``is_finished`` is False (``wait=False``), a worker invalidates them within
    seconds.
    """

    entries: int
    is_finished: bool


MinGeneration: TypeAlias = int | Mapping[int, int] | Invalidation
"""An invalidation, its numbers by version, or a single number."""
