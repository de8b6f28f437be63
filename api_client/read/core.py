"""What a read does with an entry once it is there: judge, decode, hand a trigger over. Shared by both readers; no I/O.

A read goes three ways, each tried in turn: the in-process tier, the entry in Redis, a wait. The first two end here.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from api_client.config.settings import ReaderSettings
from api_client.errors import CacheError, CacheUnavailable, DecodeError
from api_client.local.entry import NOT_KEPT, LocalEntry, earliest_us, local_entry, value_of
from api_client.local.tier import Fill, LocalTier
from api_client.local.tracking import TrackingLink
from api_client.local.unchanged import UnchangedEntryCache
from api_client.observe.events import ReaderEvents, ReadFailure
from api_client.observe.tracing import ReaderSpans
from api_client.protocol import payload
from api_client.protocol.clock import monotonic_seconds
from api_client.protocol.entry import Header, decode_header
from api_client.protocol.keys import CacheKey
from api_client.protocol.messages import RefreshReason
from api_client.protocol.model import Answer, EntryState, RefreshState
from api_client.read.evaluate import PLAIN, Freshness, judge, satisfies, trigger_of
from api_client.transport.health import Health
from api_client.trigger.history import DecisionLog
from api_client.trigger.publisher import Publisher, Trigger
from api_client.trigger.suppression import TriggerSuppressor

log: Final = logging.getLogger(__name__)

MAX_REMEMBERED: Final = 1_000


class Unreadable:
    """Tells events of each unreadable entry, and the log of the first of its kind."""

    def __init__(self, events: ReaderEvents) -> None:
        self._events = events
        self._logged: set[tuple[str, str]] = set()

    def note(self, key: CacheKey, reason: str) -> None:
        """Count an entry under ``key`` that is no entry of this release, for ``reason``."""
        self._events.unreadable_entry(key.query, reason=reason)
        kind = (key.query, reason)
        if kind not in self._logged and len(self._logged) < MAX_REMEMBERED:
            self._logged.add(kind)
            log.warning("an entry of %s (%s) can't be read (%s); it counts as a miss", key.query, key.short, reason)


class ReadCore:
    """Serves reads from what is there. Thread-safe.

    Args:
        tier: the in-process tier, and ``tracking``, who tells it what has changed; None: there is none.
    """

    def __init__(
        self,
        settings: ReaderSettings,
        health: Health,
        publisher: Publisher,
        asked: TriggerSuppressor,
        decisions: DecisionLog,
        events: ReaderEvents,
        tier: LocalTier | None,
        tracking: TrackingLink | None,
    ) -> None:
        self._max_bytes = settings.max_value_bytes
        self._clock, self._publisher, self._asked, self._events = health.clock, publisher, asked, events
        self._note = decisions.note
        self._tells_hits = type(events) is not ReaderEvents
        self._note_hit = events.note_hit
        self.spans: ReaderSpans = events.spans
        self._unreadable = Unreadable(events)
        self.tier: LocalTier | None = tier
        self.tracking: TrackingLink | None = tracking
        self._kept: Mapping[str, LocalEntry] = {} if tier is None else tier.entries
        self._quiet: Mapping[str, LocalEntry] = {} if self._tells_hits else self._kept
        self._repeats = UnchangedEntryCache(settings.max_value_bytes)

    def try_local_fast_path(self, key: CacheKey, type_: Any) -> Any:
        """Return the value where the tier has it and nothing is to be decided; NOT_KEPT: go the whole way.

        This is what most local reads are, and nothing here is done that the whole way would do otherwise.
        """
        kept = self._quiet.get(key.entry)
        if kept is None or time.monotonic() >= kept.quiet_until:
            return NOT_KEPT
        kept.used = True
        # As `value_of`, written out: a call is a tenth of what a local hit costs.
        if kept.type_ is not type_:
            return payload.decode(kept.content, type_, key.query)
        copy = kept.copy
        return kept.value if copy is None else copy(kept.value)

    def serve_local(self, key: CacheKey, floor: Freshness, type_: Any) -> Answer | None:
        """Answer from the in-process tier; None: it has nothing that is good enough.

        Raises:
            DecodeError.
        """
        kept = self._kept.get(key.entry)
        now = monotonic_seconds()
        if kept is None or now >= kept.expires_at:
            return None
        now_us = self._clock.at_us(now)
        if floor is not PLAIN and not satisfies(kept.header, floor, now_us):
            return None
        kept.used = True
        return self._answer_from(kept, key, type_, now_us, decides=now >= kept.earliest_at)

    def _answer_from(
        self,
        kept: LocalEntry,
        key: CacheKey,
        type_: Any,
        now_us: int,
        *,
        decides: bool,
        together: list[Trigger] | None = None,
    ) -> Answer:
        """Answer from an entry whose header is decoded; with a decision of this call's own, where one can be due."""
        header = kept.header
        state, refresh, trigger = EntryState.FRESH, RefreshState.NONE, None
        if decides:
            u = 1.0 - random.random()  # noqa: S311 - no secret
            trigger = trigger_of(header, now_us, u)
            if header.is_stale(now_us):
                state = EntryState.STALE
            refresh = self._refresh_for(key, trigger, header, now_us, u, together)
        value = value_of(kept, type_, key.query)
        if self._tells_hits:
            self._tell_hit(key, header, now_us, trigger)
        return value, header, state, refresh, now_us

    def begin(self, key: CacheKey) -> Fill | None:
        """Tell the tier that a read of the entry is about to be sent."""
        if self.tier is None or self.tracking is None:
            return None
        self.tracking.start()
        return self.tier.begin(key.entry)

    def forget(self, key: CacheKey) -> None:
        """Drop what the tier has of a key of which this process has just seen, or made, something newer.

        Redis says so too, but its message may be handled later than the next read.
        """
        if self.tier is not None:
            self.tier.drop(key.entry)

    def abandon(self, fill: Fill | None) -> None:
        """Tell the tier that the read has failed."""
        if self.tier is not None and fill is not None:
            self.tier.abandon(fill)

    def serve(
        self,
        key: CacheKey,
        raw: bytes | None,
        floor: Freshness,
        type_: Any,
        fill: Fill | None,
        together: list[Trigger] | None = None,
    ) -> Answer | int:
        """Answer from the entry's bytes as Redis gave them, and let the tier have them (``fill``: see `begin`).

        Returns the token of the entry (0: none) where it is not good enough, and has to be waited for. A trigger is
        handed over at once, or put into ``together``, for `submit`.

        Raises:
            DecodeError.
        """
        now_us = self._clock.at_us(monotonic_seconds())
        if raw and floor is PLAIN and fill is None:
            known = self._serve_known(key, raw, type_, now_us, together)
            if known is not None:
                return known
        u = 1.0 - random.random()  # noqa: S311 - no secret
        verdict = judge(raw, key.digest, floor, now_us=now_us, u=u)
        header = verdict.header
        if verdict.unreadable:
            self._unreadable.note(key, verdict.unreadable)
        if not verdict.good or header is None or raw is None:
            if fill is not None:
                self._keep_unread(key, raw, header, fill)
            return verdict.seen_token
        # Before the value is decoded: one that does not fit the caller's type has to be refreshed all the same.
        refresh = self._refresh_for(key, verdict.trigger, header, now_us, u, together)
        if fill is None:
            value = payload.decode(self._content(raw, header, key), type_, key.query)
        else:
            value = self._decode_and_keep(key, raw, header, type_, fill)
        is_stale = verdict.trigger not in {None, RefreshReason.EARLY}
        if self._tells_hits:
            self._tell_hit(key, header, now_us, verdict.trigger)
        return value, header, EntryState.STALE if is_stale else EntryState.FRESH, refresh, now_us

    def _serve_known(
        self, key: CacheKey, raw: bytes, type_: Any, now_us: int, together: list[Trigger] | None
    ) -> Answer | None:
        """Answer from bytes that have come before; None: they have not, or have to be looked at."""
        repeat = self._repeats.get(key, raw, type_)
        if repeat is None or (kept := repeat.entry) is None:
            return None
        decides = not repeat.stored_us <= now_us < repeat.earliest_us
        if decides or self._tells_hits:
            return self._answer_from(kept, key, type_, now_us, decides=decides, together=together)
        return value_of(kept, type_, key.query), kept.header, EntryState.FRESH, RefreshState.NONE, now_us

    def taken(self, key: CacheKey, raw: bytes, type_: Any) -> tuple[Any, Header]:
        """Return the value and the header of bytes that a wait has brought; many may have waited for them.

        Raises:
            DecodeError.
        """
        repeat = self._repeats.get(key, raw, type_)
        if repeat is not None and repeat.entry is not None:
            return value_of(repeat.entry, type_, key.query), repeat.entry.header
        header = decode_header(raw, key.digest)
        return payload.decode(self._content(raw, header, key), type_, key.query), header

    def _content(self, raw: bytes, header: Header, key: CacheKey) -> bytes:
        return payload.content_of(raw, header, key.query, self._max_bytes)

    def submit(self, triggers: Sequence[Trigger]) -> list[bool]:
        """Hand triggers over to the publisher; in their order, False for each that was dropped."""
        accepted = self._publisher.submit_all(triggers)
        for trigger, was_accepted in zip(triggers, accepted, strict=True):
            if not was_accepted:
                self._events.refresh_dropped(trigger.key.query, why="backlog")
        return accepted

    def now_us(self) -> int:
        """Return Redis' time, which has been learnt before anything was read."""
        return self._clock.now_us()

    def record_miss(self, key: CacheKey) -> None:
        """Tell those who count that a read waits."""
        self._events.miss(key.query)

    def record_failure(self, key: CacheKey, error: CacheError) -> None:
        """Tell those who count that a read ended without a value."""
        if isinstance(error, CacheUnavailable):
            self._events.unavailable(key.query)
        if (why := ReadFailure.of(error)) is not None:
            self._events.read_failed(key.query, why=why)

    def record_single_flight_hit(self, key: CacheKey, waited_seconds: float) -> None:
        """Tell those who count that a read was served by another one's wait."""
        self._events.single_flight_hit(key.query, waited_seconds=waited_seconds)

    def _refresh_for(
        self,
        key: CacheKey,
        reason: RefreshReason | None,
        header: Header,
        now_us: int,
        u: float,
        together: list[Trigger] | None,
    ) -> RefreshState:
        """Hand over the trigger of a read, if it has one, and note the decision."""
        refresh = RefreshState.NONE if reason is None else self._ask_for(key, reason, header, together)
        self._note(key.entry, now_us, u, refresh)
        return refresh

    def _ask_for(
        self, key: CacheKey, reason: RefreshReason, header: Header, together: list[Trigger] | None = None
    ) -> RefreshState:
        # Noted before it is handed over: of a thousand readers in a row, one asks.
        # An invalidation makes another entry of it: what was told of the key before may have ended with it.
        mark = max(header.token, header.generation)
        if not self._asked.note(key.entry, mark, 1.0):
            return RefreshState.SUPPRESSED
        self._clock.check_against(header.fetched_at_us)
        trigger = Trigger(key, reason, seen_token=header.token, mark=mark)
        if together is not None:
            together.append(trigger)
            return RefreshState.TRIGGERED
        if self._publisher.submit(trigger):
            return RefreshState.TRIGGERED
        self._events.refresh_dropped(key.query, why="backlog")
        return RefreshState.DROPPED

    def _decode_and_keep(self, key: CacheKey, raw: bytes, header: Header, type_: Any, fill: Fill) -> Any:
        try:
            content = self._content(raw, header, key)
            value = payload.decode(content, type_, key.query)
        except Exception:  # a TypeError, too: a type that is none
            self.abandon(fill)
            raise
        assert self.tier is not None  # noqa: S101 - it gave the fill
        self.tier.fill(fill, kept := local_entry(content, header, self._earliest_at(header), value, type_))
        return value if kept.copy is None else kept.copy(value)

    def _keep_unread(self, key: CacheKey, raw: bytes | None, header: Header | None, fill: Fill) -> None:
        """Keep an entry that was not good enough for this caller; for others it may be."""
        assert self.tier is not None  # noqa: S101 - it gave the fill
        if raw is None or header is None or header.is_handoff:
            self.tier.drop(fill.entry_key)  # what is kept is gone, or was replaced: this process has just seen it
            return
        try:
            content = self._content(raw, header, key)
        except DecodeError:  # told to whoever reads it
            self.abandon(fill)
        else:
            self.tier.fill(fill, LocalEntry(content, header, self._earliest_at(header)))

    def _earliest_at(self, header: Header) -> float:
        """Return when a read can ask for a refresh at the earliest, in monotonic seconds; 0: each has to decide."""
        return 0.0 if header.is_ahead(self.now_us()) else self._clock.monotonic_at(earliest_us(header))

    def _tell_hit(self, key: CacheKey, header: Header, now_us: int, trigger: RefreshReason | None) -> None:
        if self._note_hit is not None:
            # Numbers alone: hundreds of headers that are kept would cost more than what is done with them.
            is_over = header.generation > header.token or header.is_ahead(now_us)
            left_us = 0 if is_over else header.soft_expiry_us - now_us
            self._note_hit((key.query, now_us - header.read_started_us, left_us, trigger is not None))
            return
        self._events.hit(
            key.query,
            age_seconds=(now_us - header.read_started_us) / 1e6,
            ttl_remaining_seconds=header.left_seconds(now_us),
            triggered=trigger is not None,
        )
