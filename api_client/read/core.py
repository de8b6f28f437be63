"""The core of a read: evaluation of an entry, its decoding, its refresh trigger. Shared by both readers; no I/O.

A read tries in turn the in-process tier, the entry in Redis and a wait. The first two are served here.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from api_client.config.settings import ReaderSettings
from api_client.errors import CacheError, CacheUnavailable, DecodeError
from api_client.local.decoded import DecodedEntryCache
from api_client.local.entry import NOT_KEPT, LocalEntry, decode_entry, earliest_us, value_of
from api_client.local.tier import Fill, LocalTier
from api_client.local.tracking import TrackingLink
from api_client.observe.events import ReaderEvents, ReadFailure
from api_client.observe.tracing import ReaderSpans
from api_client.protocol import payload
from api_client.protocol.clock import monotonic_seconds
from api_client.protocol.entry import Header, decode_header
from api_client.protocol.keys import CacheKey
from api_client.protocol.lease import ClaimReply
from api_client.protocol.messages import RefreshReason
from api_client.protocol.model import EntryState, ReadResult, RefreshState
from api_client.read.evaluate import ANY, Freshness, evaluate, refresh_reason, satisfies
from api_client.read.in_place import followers, loader_of
from api_client.read.wait import Wait
from api_client.transport.link import CacheLink
from api_client.trigger.backlog import Trigger
from api_client.trigger.publisher import Publisher
from api_client.trigger.suppression import MAX_SUPPRESSION_SECONDS, TriggerSuppressor

log: Final = logging.getLogger(__name__)

MAX_REMEMBERED: Final = 1_000


class MustWait(msgspec.Struct, frozen=True, gc=False):
    """Result of a read that no entry satisfies; ``seen_token`` is the existing entry's token, or 0 without an entry."""

    seen_token: int


class ReadCore:
    """Serves reads from existing entries. Thread-safe.

    Args:
        link: syncs the clock; reads no entries here.
        tier: the in-process tier, and ``tracking``, which invalidates it; None if it is off.
    """

    def __init__(
        self,
        settings: ReaderSettings,
        link: CacheLink,
        publisher: Publisher,
        suppressor: TriggerSuppressor,
        events: ReaderEvents,
        tier: LocalTier | None,
        tracking: TrackingLink | None,
    ) -> None:
        self._settings, self._max_bytes = settings, settings.max_value_bytes
        self._link, self._clock = link, link.routes.clock
        self._publisher, self._suppressor, self._events = publisher, suppressor, events
        self._reports_hits = type(events) is not ReaderEvents
        self.spans: ReaderSpans = events.spans
        self.tier: LocalTier | None = tier
        self.tracking: TrackingLink | None = tracking
        self._kept: Mapping[str, LocalEntry] = {} if tier is None else tier.entries
        self._decoded = DecodedEntryCache(settings.max_value_bytes)
        self._logged_unreadable: set[tuple[str, str]] = set()

    def try_local_fast_path(self, key: CacheKey, type_: Any) -> Any:
        """Return the value if the tier holds it and no decision is due; NOT_KEPT calls for a full read.

        Most local reads end here, with the same effects as a full read.
        """
        kept = self._kept.get(key.entry)
        if kept is None or (now := time.monotonic()) >= kept.quiet_until:
            return NOT_KEPT
        kept.used = True
        # `value_of`, inlined: a call is a tenth of the cost of a local hit.
        if kept.type_ is not type_:
            value = payload.decode(kept.content, type_, key.query)
        else:
            copy = kept.copy
            value = kept.value if copy is None else copy(kept.value)
        if self._reports_hits or followers:
            self._report_hit(key, kept.header, self._clock.at_us(now), None)
        return value

    def serve_local(self, key: CacheKey, freshness: Freshness, type_: Any) -> ReadResult | None:
        """Serve from the in-process tier; return None if it holds no entry that satisfies the read.

        Raises:
            DecodeError.
        """
        kept = self._kept.get(key.entry)
        now = monotonic_seconds()
        if kept is None or now >= kept.expires_at:
            return None
        now_us = self._clock.at_us(now)
        if freshness is not ANY and not satisfies(kept.header, freshness, now_us):
            return None
        kept.used = True
        return self._serve_decoded(kept, key, type_, now_us, decides=now >= kept.earliest_at)

    def serve(
        self,
        key: CacheKey,
        raw: bytes | None,
        freshness: Freshness,
        type_: Any,
        fill: Fill | None,
        batched: list[Trigger] | None = None,
    ) -> ReadResult | MustWait:
        """Serve from the entry's bytes as Redis returned them, and fill the tier (see `begin_fill` for ``fill``).

        A trigger is submitted at once, or appended to ``batched`` for `submit`.

        Raises:
            DecodeError.
        """
        now_us = self._clock.at_us(monotonic_seconds())
        if raw and freshness is ANY and fill is None:
            known = self._serve_unchanged(key, raw, type_, now_us, batched)
            if known is not None:
                return known
        found = evaluate(raw, key.digest, freshness, now_us=now_us, u=1.0 - random.random())  # noqa: S311 - no secret
        header = found.header
        if found.unreadable:
            self._report_unreadable(key, found.unreadable)
        if not found.satisfies or header is None or raw is None:
            if fill is not None:
                self._keep_unserved(key, raw, header, fill)
            return MustWait(found.seen_token)
        # Before decoding, because a value that does not fit the caller's type still has to be refreshed.
        refresh = self._trigger(key, found.trigger, header, batched)
        value = self._decode(key, raw, header, type_) if fill is None else self._fill(key, raw, header, type_, fill)
        is_stale = found.trigger not in {None, RefreshReason.EARLY}
        if self._reports_hits or followers:
            self._report_hit(key, header, now_us, found.trigger)
        return ReadResult(value, header, EntryState.STALE if is_stale else EntryState.FRESH, refresh, now_us)

    def decode_awaited(self, key: CacheKey, raw: bytes, type_: Any) -> tuple[Any, Header]:
        """Return the value and header of the bytes that a wait returned, perhaps to many readers.

        Raises:
            DecodeError.
        """
        known = self._decoded.get(key, raw, type_)
        if known is not None and known.entry is not None:
            _follow(key, known.entry.header)
            return value_of(known.entry, type_, key.query), known.entry.header
        header = decode_header(raw, key.digest)
        value = self._decode(key, raw, header, type_)
        _follow(key, header)
        return value, header

    def begin_wait(
        self,
        key: CacheKey,
        freshness: Freshness,
        seen_token: int,
        timeout_seconds: float,
        claimed: ClaimReply | None = None,
    ) -> Wait:
        """Begin a wait for an entry that satisfies ``freshness``; the arguments are those of `Wait`."""
        return Wait(key, freshness, seen_token, timeout_seconds, self._settings, self._publisher, claimed)

    def submit(self, triggers: Sequence[Trigger]) -> list[bool]:
        """Submit triggers to the publisher; return False, in order, for each that was dropped."""
        return self._publisher.submit_all(triggers)

    def now_us(self) -> int:
        """Return Redis' time. The clock must have been synced."""
        return self._clock.now_us()

    def resync_clock(self) -> None:
        """Sync Redis' clock again, off the caller's path."""

        def sync() -> None:
            with suppress(CacheUnavailable):  # the reads themselves report it
                self._link.sync_clock()

        self._publisher.run_in_background(sync)

    def begin_fill(self, key: CacheKey) -> Fill | None:
        """Tell the tier that a read of the entry is about to be sent."""
        if self.tier is None or self.tracking is None:
            return None
        self.tracking.start()
        return self.tier.begin(key.entry)

    def abandon(self, fill: Fill | None) -> None:
        """End a fill whose read has failed."""
        if self.tier is not None and fill is not None:
            self.tier.abandon(fill)

    def forget(self, key: CacheKey) -> None:
        """Drop a key's entry from the tier, after this process has seen or made a newer one.

        Redis invalidates it too, but that message may arrive after the next read.
        """
        if self.tier is not None:
            self.tier.drop(key.entry)

    def check_in_place(self, key: CacheKey) -> None:
        """Check that this read may wait for the key, if it is part of a load of this process.

        Raises:
            RefreshFailed: the load would wait for itself, or too many loads would wait for each other.
        """
        if (loader := loader_of(key, self._settings)) is not None:
            loader.check(key)

    def record_miss(self, key: CacheKey) -> None:
        """Record a read that waits."""
        self._events.miss(key.query)

    def record_failure(self, key: CacheKey, error: CacheError) -> None:
        """Record a read that ended without a value."""
        if isinstance(error, CacheUnavailable):
            self._events.unavailable(key.query)
        if (why := ReadFailure.of(error)) is not None:
            self._events.read_failed(key.query, why=why)

    def record_single_flight_hit(self, key: CacheKey, waited_seconds: float) -> None:
        """Record a read that another read's wait served."""
        self._events.single_flight_hit(key.query, waited_seconds=waited_seconds)

    def _serve_unchanged(
        self, key: CacheKey, raw: bytes, type_: Any, now_us: int, batched: list[Trigger] | None
    ) -> ReadResult | None:
        """Serve from bytes that were decoded before; return None if they were not, or can't be shared."""
        known = self._decoded.get(key, raw, type_)
        if known is None or (kept := known.entry) is None:
            return None
        decides = not known.stored_us <= now_us < known.earliest_us
        return self._serve_decoded(kept, key, type_, now_us, decides=decides, batched=batched)

    def _serve_decoded(
        self,
        kept: LocalEntry,
        key: CacheKey,
        type_: Any,
        now_us: int,
        *,
        decides: bool,
        batched: list[Trigger] | None = None,
    ) -> ReadResult:
        """Serve from an entry whose header is decoded, with this read's own decision if one can be due."""
        header = kept.header
        state, refresh, trigger = EntryState.FRESH, RefreshState.NONE, None
        if decides:
            trigger = refresh_reason(header, now_us, 1.0 - random.random())  # noqa: S311 - no secret
            if header.is_stale(now_us):
                state = EntryState.STALE
            refresh = self._trigger(key, trigger, header, batched)
        value = value_of(kept, type_, key.query)
        if self._reports_hits or followers:
            self._report_hit(key, header, now_us, trigger)
        return ReadResult(value, header, state, refresh, now_us)

    def _trigger(
        self, key: CacheKey, reason: RefreshReason | None, header: Header, batched: list[Trigger] | None
    ) -> RefreshState:
        """Trigger a refresh if the read has decided on one."""
        if reason is None:
            return RefreshState.NONE
        # Marked before it is submitted, so that one of a thousand reads in a row triggers.
        # An invalidation counts as a new entry, because it may have ended whatever suppressed triggers of the key.
        mark = max(header.token, header.generation)
        if not self._suppressor.try_mark(key.entry, mark, MAX_SUPPRESSION_SECONDS):
            return RefreshState.SUPPRESSED
        self._clock.check_against(header.fetched_at_us)
        trigger = Trigger(key, reason, seen_token=header.token, run_seconds=header.run.mean, mark=mark)
        if batched is not None:
            batched.append(trigger)
            return RefreshState.TRIGGERED
        return RefreshState.TRIGGERED if self.submit((trigger,))[0] else RefreshState.DROPPED

    def _decode(self, key: CacheKey, raw: bytes, header: Header, type_: Any) -> Any:
        return payload.decode(payload.content_of(raw, header, key.query, self._max_bytes), type_, key.query)

    def _fill(self, key: CacheKey, raw: bytes, header: Header, type_: Any, fill: Fill) -> Any:
        """Decode an entry for its caller and for the tier."""
        assert self.tier is not None  # noqa: S101 - it made the fill
        try:
            value, kept = decode_entry(
                raw, header, type_, key.query, self._max_bytes, earliest_at=self._earliest_at(header)
            )
        except Exception:  # a TypeError too, for an undecodable type
            self.abandon(fill)
            raise
        self.tier.fill(fill, kept)
        return value

    def _keep_unserved(self, key: CacheKey, raw: bytes | None, header: Header | None, fill: Fill) -> None:
        """Keep an entry that did not satisfy this read, since it may satisfy others."""
        assert self.tier is not None  # noqa: S101 - it made the fill
        if raw is None or header is None or header.is_handoff:
            self.tier.drop(fill.entry_key)  # this process has just seen that the kept entry is gone or was replaced
            return
        try:
            content = payload.content_of(raw, header, key.query, self._max_bytes)
        except DecodeError:  # left to the reads that the entry satisfies
            self.abandon(fill)
        else:
            self.tier.fill(fill, LocalEntry(content, header, self._earliest_at(header)))

    def _earliest_at(self, header: Header) -> float:
        """Return the earliest time of a possible trigger, in monotonic seconds; 0 if each read has to decide."""
        return 0.0 if header.is_ahead(self.now_us()) else self._clock.monotonic_at(earliest_us(header))

    def _report_unreadable(self, key: CacheKey, reason: str) -> None:
        """Record an entry that this release can't read; log the first one for each reason."""
        self._events.unreadable_entry(key.query, reason=reason)
        kind = (key.query, reason)
        if kind not in self._logged_unreadable and len(self._logged_unreadable) < MAX_REMEMBERED:
            self._logged_unreadable.add(kind)
            log.warning("unreadable entry for %s (%s): %s; treating it as a miss", key.query, key.short, reason)

    def _report_hit(self, key: CacheKey, header: Header, now_us: int, trigger: RefreshReason | None) -> None:
        _follow(key, header)
        if not self._reports_hits:
            return
        self._events.hit(
            key.query,
            age_seconds=(now_us - header.read_started_us) / 1e6,
            ttl_remaining_seconds=header.left_seconds(now_us),
            triggered=trigger is not None,
        )


def _follow(key: CacheKey, header: Header) -> None:
    for follow in followers:
        follow(key, header)
