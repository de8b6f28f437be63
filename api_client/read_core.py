"""What a read does with an entry once it is there: judge, decode, hand a trigger over. Shared by both readers; no I/O.

A read goes three ways, each tried in turn: the in-process tier, the entry in Redis, a wait. The first two end here.
"""

from __future__ import annotations

import random
from typing import Any, Final, TypeAlias

from api_client import payload, xfetch
from api_client.asked import AskedRecently
from api_client.clock import monotonic_seconds
from api_client.entry import Header, decode_header
from api_client.events import ReaderEvents, RefreshReason
from api_client.health import Health
from api_client.keys import CacheKey
from api_client.local_tier import NOT_KEPT, Fill, LocalEntry, LocalTier
from api_client.publisher import Publisher, Trigger
from api_client.read_plan import PLAIN, EntryState, Floor, RefreshState, good_enough, judge, trigger_of
from api_client.settings import ReaderSettings
from api_client.unreadable import Unreadable

Answer: TypeAlias = tuple[Any, Header, EntryState, RefreshState, int]
"""The value; its header; what the read found and what it did about a refresh; Redis' time then, in µs."""

_SHARED_TYPES: Final = frozenset({str, bytes, int, float, bool, type(None)})
"""Values of these may be given to several callers: nobody can change them."""


class ReadCore:
    """Serves reads from what is there. Thread-safe.

    Args:
        tier: the in-process tier; None: there is none.
    """

    def __init__(
        self,
        settings: ReaderSettings,
        health: Health,
        publisher: Publisher,
        asked: AskedRecently,
        events: ReaderEvents,
        tier: LocalTier | None,
    ) -> None:
        self._max_value_bytes = settings.max_value_bytes
        self._clock, self._publisher, self._asked, self._events = health.clock, publisher, asked, events
        self._tells_hits = type(events) is not ReaderEvents
        self._unreadable = Unreadable(events)
        self.tier = tier

    def serve_local(self, key: CacheKey, floor: Floor, type_: Any) -> Answer | None:
        """Answer from the in-process tier; None: it has nothing that is good enough.

        Raises:
            DecodeError.
        """
        kept = self.tier.entries.get(key.entry) if self.tier is not None else None
        now = monotonic_seconds()
        if kept is None or now >= kept.expires_at:
            return None
        now_us = self._clock.at_us(now)
        header = kept.header
        if floor is not PLAIN and not good_enough(header, floor, now_us):
            return None
        kept.used = True
        value = kept.value
        if value is NOT_KEPT or type_ is not Any:
            value = self.value(kept.raw, header, type_, key)
        if now_us < kept.earliest_us:
            state, refresh, trigger = EntryState.FRESH, RefreshState.NONE, None
        else:
            trigger = trigger_of(header, now_us, 1.0 - random.random())  # noqa: S311 - no secret
            state = EntryState.STALE if header.is_stale(now_us) else EntryState.FRESH
            refresh = RefreshState.NONE if trigger is None else self._ask_for(key, trigger, header.token)
        if self._tells_hits:
            self._tell_hit(key, header, now_us, trigger)
        return value, header, state, refresh, now_us

    def serve(self, key: CacheKey, raw: bytes | None, floor: Floor, type_: Any, fill: Fill | None) -> Answer | int:
        """Answer from the entry's bytes as Redis gave them, and let the tier have them (``fill``: see `LocalTier`).

        Returns the token of the entry (0: none) where it is not good enough, and has to be waited for.

        Raises:
            DecodeError.
        """
        now_us = self._clock.now_us()
        verdict = judge(raw, key.digest, floor, now_us=now_us, u=1.0 - random.random())  # noqa: S311 - no secret
        header = verdict.header
        if verdict.unreadable:
            self._unreadable.note(key, verdict.unreadable)
        if not verdict.good or header is None or raw is None:
            if fill is not None:
                self._keep(fill, raw, header, NOT_KEPT)
            return verdict.seen_token
        value = self.value(raw, header, type_, key)
        if fill is not None:
            self._keep(fill, raw, header, value if type_ is Any and type(value) in _SHARED_TYPES else NOT_KEPT)
        state = EntryState.STALE if header.is_stale(now_us) else EntryState.FRESH
        refresh = RefreshState.NONE
        if verdict.trigger is not None:
            refresh = self._ask_for(key, verdict.trigger, header.token)
        if self._tells_hits:
            self._tell_hit(key, header, now_us, verdict.trigger)
        return value, header, state, refresh, now_us

    def waited(self, key: CacheKey, raw: bytes, type_: Any) -> Answer:
        """Answer from the bytes that a wait has brought.

        Raises:
            DecodeError.
        """
        header = decode_header(raw, key.digest)
        value = self.value(raw, header, type_, key)
        return value, header, EntryState.MISS, RefreshState.TRIGGERED, self._clock.now_us()

    def value(self, raw: bytes, header: Header, type_: Any, key: CacheKey) -> Any:
        """Decode an entry's payload: anew for each caller, who may change what it gets.

        Raises:
            DecodeError.
        """
        return payload.decode(
            raw,
            type_,
            offset=header.length,
            is_compressed=header.is_compressed,
            query=key.query,
            max_bytes=self._max_value_bytes,
        )

    def _ask_for(self, key: CacheKey, reason: RefreshReason, seen_token: int) -> RefreshState:
        # Noted before it is handed over: of a thousand readers in a row, one asks.
        if not self._asked.note(key.entry, seen_token, 1.0):
            return RefreshState.SUPPRESSED
        if self._publisher.submit(Trigger(key, reason, seen_token=seen_token)):
            return RefreshState.TRIGGERED
        self._events.refresh_dropped(key.query, why="backlog")
        return RefreshState.DROPPED

    def _keep(self, fill: Fill, raw: bytes | None, header: Header | None, value: Any) -> None:
        assert self.tier is not None  # noqa: S101 - it gave the fill
        if raw is None or header is None or header.is_handoff:
            self.tier.abandon(fill)
            return
        earliest_us = 0  # invalidated: each read is positive
        if header.generation <= header.token:
            earliest_us = xfetch.earliest_positive_us(
                header.soft_expiry_us,
                delta_seconds=header.delta.mean,
                beta=header.beta,
                ttl_seconds=header.ttl_seconds,
            )
        self.tier.fill(fill, LocalEntry(raw, header, earliest_us, value))

    def _tell_hit(self, key: CacheKey, header: Header, now_us: int, trigger: RefreshReason | None) -> None:
        self._events.hit(
            key.query,
            age_seconds=(now_us - header.read_started_us) / 1e6,
            ttl_remaining_seconds=(header.soft_expiry_us - now_us) / 1e6,
            triggered=trigger is not None,
        )
