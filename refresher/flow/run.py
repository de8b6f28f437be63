"""One run under a lease: its acquire's result, its clock, its bookmarks, its failure and its entry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, TypedDict

from msgspec import structs

from api_client.errors import CacheUnavailable
from api_client.protocol.entry import Header, Smoothed, UnreadableEntry, decode_header
from api_client.protocol.keys import CacheKey
from api_client.protocol.lease import AcquireReply
from api_client.protocol.messages import RefreshItem, RefreshReason
from refresher.errors import MAX_TEXT, LoadFailed, message_of
from refresher.flow import policy
from refresher.flow.dead_letters import DeadLetter
from refresher.queries import Query
from refresher.settings import WorkerSettings

MAX_BOOKMARKS_KEPT: Final = 64
"""Limit of bookmarks in an entry, since every hit reads them."""
MAX_BOOKMARKS_BYTES: Final = 49_152
MAX_BOOKMARKS_KEPT_SECONDS: Final = 1_200.0
"""Time for which a tag keeps bookmarks (twice BOOKMARKS_KEPT of prelude.lua)."""


class OwnLease(TypedDict):
    """The lease that a step ends, by its fencing token, and the record's retention."""

    token: int
    nonce: bytes
    retention_seconds: float


@dataclass(frozen=True, slots=True)
class Run:
    """A run. ``query`` is None if this worker has not registered it.

    ``acquired_at`` is the time by ``monotonic`` of acquire's reply, from which Redis' time is computed. ``tag_clock``
    is the tag clock's number before the load, or the error that hid it. ``tag_bookmarks`` are the bookmarks that the
    previous entry's tags remember, as far as they have been read.
    """

    item: RefreshItem
    key: CacheKey
    query: Query | None
    nonce: bytes
    lease: AcquireReply
    acquired_at: float
    monotonic: Callable[[], float]
    tag_clock: int | CacheUnavailable = 0
    tag_bookmarks: tuple[str, ...] = ()
    before: Header | None = field(init=False)
    """The header of the entry that acquire found, for its δ state."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "before", _readable(self.lease.entry_header, self.key.digest))

    @property
    def name(self) -> str:
        """Query and key, for logs."""
        return f"{self.key.query} {self.key.short}"

    @property
    def token(self) -> int:
        """The number drawn by acquire."""
        return self.lease.token

    def next_attempt(self) -> Run:
        """Return the run with its next attempt."""
        return replace(self, item=structs.replace(self.item, attempt=self.item.attempt + 1))

    def own_lease(self, settings: WorkerSettings) -> OwnLease:
        """Return the arguments shared by all steps that end the run."""
        return {"token": self.token, "nonce": self.nonce, "retention_seconds": settings.record_retention_seconds}

    def elapsed_seconds(self) -> float:
        """Return how long the run has held its lease."""
        return self.monotonic() - self.acquired_at

    def now_us(self) -> int:
        """Return Redis' time: that of acquire plus the monotonic time since."""
        return self.lease.now_us + int(self.elapsed_seconds() * 1e6)

    def stale_seconds(self) -> float | None:
        """Return the time since the invalidation that the run repairs, or None if there was none."""
        before = self.before
        invalidated_us = max(self.lease.generation, before.generation if before else 0)
        if invalidated_us <= (before.token if before else 0):
            return None
        return max(0.0, (self.now_us() - invalidated_us) / 1e6)

    def lead_seconds(self) -> float:
        """Return the time from the claim until now, including the wait in the queue."""
        return max(0.0, (self.now_us() - self.lease.claimed_at_us) / 1e6)

    def delta_sample(self, run_seconds: float) -> float:
        """Return δ's sample: the lead time of an early or stale refresh, or of any other refresh the run alone.

        ``run_seconds`` stands for the run, because one that finds its value unchanged may be shorter than the next.

        Early refreshes do not wait in the queue for misses, nor behind all keys of a flush, a warm-up or an
        invalidation. With that wait in δ, each of those keys would be refreshed at half its TTL for hours, twice as
        often as needed.
        """
        waits_as_early = self.item.reason in {RefreshReason.EARLY, RefreshReason.STALE}
        wait_seconds = max(0.0, self.lead_seconds() - self.elapsed_seconds()) if waits_as_early else 0.0
        return wait_seconds + run_seconds


@dataclass(frozen=True, slots=True)
class LoadedEntry:
    """Entry that a run has loaded: its bytes, its life in Redis, and the tags of its value.

    For an unchanged value the bytes are only the header's, and ``prolongs`` is the nonce of the present entry.
    """

    content: bytes
    hard_ttl_seconds: float
    tags: tuple[str, ...]
    prolongs: bytes = b""


def _readable(header: bytes, digest: bytes) -> Header | None:
    try:
        return decode_header(header, digest)
    except UnreadableEntry:
        return None


def bookmarks_of(run: Run, settings: WorkerSettings) -> tuple[str, ...]:
    """Return the bookmarks that the load reads after: the entry's, then those of invalidations and of its claim.

    The commit removes those in the record. Without the entry's, the next load could get an older value than the entry
    from a follower that lags. First come those of the entry's tags, of which the entry may not have kept all: a load
    without one of them would be invalidated by it again, and repeated.
    """
    own = dict.fromkeys(bookmarks_to_keep(run, settings))
    return newest((*(mark for mark in run.tag_bookmarks if mark not in own), *own), MAX_BOOKMARKS_BYTES)


def bookmarks_to_keep(run: Run, settings: WorkerSettings) -> tuple[str, ...]:
    """Return the bookmarks that the run's entry keeps, apart from its tags': the previous entry's, then its own."""
    given = run.lease.bookmarks
    return (*(mark for mark in recent_bookmarks(run, settings) if mark not in given), *given)


def recent_bookmarks(run: Run, settings: WorkerSettings) -> tuple[str, ...]:
    """Return the previous entry's bookmarks, for as long as the record or the tags keep theirs.

    So a bookmark that the graph no longer knows disappears by itself.
    """
    before = run.before
    if before is None:
        return ()
    kept_seconds = max(settings.record_retention_seconds, MAX_BOOKMARKS_KEPT_SECONDS if before.encoded_tags else 0.0)
    is_recent = run.lease.now_us - before.fetched_at_us <= kept_seconds * 1e6
    return before.bookmarks if is_recent else ()


def newest(bookmarks: tuple[str, ...], max_bytes: int) -> tuple[str, ...]:
    """Return as many of the last bookmarks as fit, one per line."""
    left_bytes = max_bytes
    for place, bookmark in reversed(list(enumerate(bookmarks))):
        left_bytes -= len(bookmark) + 1
        if left_bytes < 0:
            return bookmarks[place + 1 :]
    return bookmarks


def letter_of(run: Run, attempts: int, failure: LoadFailed, failures: int) -> DeadLetter:
    """Return the dead letter of an abandoned run, the only place for the params and the failure's whole text.

    It omits them for a sensitive query, and for one that is not registered here, which may be sensitive.
    """
    keeps_all = run.query is not None and not run.query.sensitive
    return DeadLetter(
        query=run.key.query,
        version=run.key.version,
        params=run.key.params if keeps_all else None,
        digest=run.key.digest.hex(),
        token=run.token,
        kind=failure.kind,
        message=message_of(failure) if keeps_all else None,
        attempts=attempts,
        at_us=run.now_us(),
        failures=failures,
        place=failure.place,
    )


def shown_failure(run: Run, failure: LoadFailed, settings: WorkerSettings) -> str:
    """Format a failure for logs, with its text if configured and the query is not sensitive."""
    if not _shows_text(run, settings):
        return failure.shown
    return f"{failure.kind}: {_text_with_place(failure)}"


def failure_for_readers(run: Run, failure: LoadFailed, settings: WorkerSettings) -> str:
    """Return the explanation of a failure for readers, under the same conditions as `shown_failure`."""
    return failure.why or (_text_with_place(failure) if _shows_text(run, settings) else "")


def _shows_text(run: Run, settings: WorkerSettings) -> bool:
    return settings.show_failures and run.query is not None and not run.query.sensitive


def _text_with_place(failure: LoadFailed) -> str:
    return f"{message_of(failure)[:MAX_TEXT]}{failure.place and f' at {failure.place}'}"


def learned_lease_seconds(run_before: Smoothed | None, settings: WorkerSettings, u: float) -> float:
    """Return the lease time of an entry, learned from its runs; ``u`` in [0, 1) determines the jitter."""
    jitter_ms = settings.jitter_min_ms + (settings.jitter_max_ms - settings.jitter_min_ms) * u
    return policy.lease_seconds(settings.lease_floor_ms / 1000, run_before, jitter_ms / 1000, settings.budget_seconds)
