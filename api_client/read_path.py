"""The way of one read through the process: judge, serve, hand a trigger over, or wait with others."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

from api_client import payload
from api_client.answers import Entry
from api_client.asked import AskedRecently
from api_client.clock import monotonic_seconds
from api_client.entry import decode_header
from api_client.errors import CacheUnavailable, WaitTimeout
from api_client.events import ReaderEvents
from api_client.flights import Flights
from api_client.keys import CacheKey
from api_client.link import CacheLink
from api_client.publisher import Publisher, Trigger
from api_client.read_plan import PLAIN, EntryState, Floor, Judgement, RefreshState, judge
from api_client.settings import ReaderSettings
from api_client.unreadable import Unreadable
from api_client.waits import WaitDriver


class ReadPath:
    """Reads entries on the calling thread. Thread-safe."""

    def __init__(
        self,
        settings: ReaderSettings,
        link: CacheLink,
        publisher: Publisher,
        asked: AskedRecently,
        driver: WaitDriver,
        events: ReaderEvents,
    ) -> None:
        self._settings, self._link, self._publisher = settings, link, publisher
        self._asked, self._driver, self._events = asked, driver, events
        self._unreadable = Unreadable(events)
        self._flights = Flights(monotonic_seconds)

    def read(self, key: CacheKey, floor: Floor, timeout_seconds: float, type_: Any) -> Entry[Any]:
        """Return the entry: at once where there is one that is good enough, else as soon as there is.

        Raises:
            RefreshFailed, WaitTimeout, CacheUnavailable, DecodeError.
        """
        raw = self._link.read(key)
        now_us = self._link.now_us()
        verdict = judge(raw, key.digest, floor, now_us=now_us, u=1.0 - random.random())  # noqa: S311 - no secret
        if verdict.unreadable:
            self._unreadable.note(key, verdict.unreadable)
        if self._link.clock_is_due():
            self._publisher.do_soon(self._relearn_clock)
        if verdict.good and verdict.header is not None and raw is not None:
            refresh = self._maybe_trigger(key, verdict)
            state = EntryState.STALE if verdict.header.is_stale(now_us) else EntryState.FRESH
            self._events.hit(
                key.query,
                age_seconds=(now_us - verdict.header.read_started_us) / 1e6,
                ttl_remaining_seconds=(verdict.header.soft_expiry_us - now_us) / 1e6,
                triggered=verdict.trigger is not None,
            )
            return Entry.of(self._value(raw, verdict.header.length, type_, key), verdict.header, state, refresh, now_us)
        return self._wait(key, floor, verdict.seen_token, timeout_seconds, type_)

    def _relearn_clock(self) -> None:
        with suppress(CacheUnavailable):  # the reads themselves say so
            self._link.learn_clock()

    def _maybe_trigger(self, key: CacheKey, verdict: Judgement) -> RefreshState:
        if verdict.trigger is None:
            return RefreshState.NONE
        # Noted before it is handed over: of a thousand readers in a row, one asks.
        if not self._asked.note(key.entry, verdict.seen_token, 1.0):
            return RefreshState.SUPPRESSED
        if self._publisher.submit(Trigger(key, verdict.trigger, seen_token=verdict.seen_token)):
            return RefreshState.TRIGGERED
        self._events.refresh_dropped(key.query, why="backlog")
        return RefreshState.DROPPED

    def _wait(self, key: CacheKey, floor: Floor, seen_token: int, timeout_seconds: float, type_: Any) -> Entry[Any]:
        self._events.miss(key.query)
        began = monotonic_seconds()
        raw, followed = None, False
        if floor.is_plain and not seen_token:
            raw, followed = self._share(key, timeout_seconds)
            if followed and decode_header(raw, key.digest).is_handoff:
                # Loaded for those who had asked before the load began; this call came later.
                raw, followed = None, False
        if raw is None:
            left_seconds = max(0.0, timeout_seconds - (monotonic_seconds() - began))
            raw = self._driver.wait(key, floor, seen_token, left_seconds)
        if followed:
            self._events.single_flight_hit(key.query, waited_seconds=monotonic_seconds() - began)
        header = decode_header(raw, key.digest)
        value = self._value(raw, header.length, type_, key)
        return Entry.of(value, header, EntryState.MISS, RefreshState.TRIGGERED, self._link.now_us())

    def _share(self, key: CacheKey, timeout_seconds: float) -> tuple[bytes, bool]:
        try:
            return self._flights.share(
                key.entry, timeout_seconds, lambda left, begins: self._driver.wait(key, PLAIN, 0, left, begins)
            )
        except WaitTimeout:
            raise
        except TimeoutError:
            raise WaitTimeout(key.query, timeout_seconds, "waiting with others") from None

    def _value(self, raw: bytes, header_length: int, type_: Any, key: CacheKey) -> Any:
        return payload.decode(
            memoryview(raw)[header_length:], type_, query=key.query, max_bytes=self._settings.max_value_bytes
        )
