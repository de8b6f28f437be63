"""The way of one sync read through the process: the tier, the entry in Redis, or a wait with others."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from api_client.clock import monotonic_seconds
from api_client.entry import decode_header
from api_client.errors import CacheUnavailable, WaitTimeout
from api_client.events import ReaderEvents
from api_client.flights import Flights
from api_client.keys import CacheKey
from api_client.link import CacheLink
from api_client.publisher import Publisher
from api_client.read_core import Answer, ReadCore
from api_client.read_plan import PLAIN, Floor
from api_client.waits import WaitDriver


class ReadPath:
    """Reads entries on the calling thread. Thread-safe."""

    def __init__(
        self, core: ReadCore, link: CacheLink, publisher: Publisher, driver: WaitDriver, events: ReaderEvents
    ) -> None:
        self._core, self._link, self._publisher = core, link, publisher
        self._driver, self._events = driver, events
        self._flights = Flights(monotonic_seconds)

    def read(self, key: CacheKey, floor: Floor, timeout_seconds: float, type_: Any) -> Answer:
        """Return the answer: at once where there is an entry that is good enough, else as soon as there is.

        Raises:
            RefreshFailed, WaitTimeout, CacheUnavailable, DecodeError.
        """
        tier = self._core.tier
        if tier is not None and (local := self._core.serve_local(key, floor, type_)) is not None:
            return local
        fill = None if tier is None else tier.begin(key.entry)
        try:
            raw = self._link.read(key)
            self.know_the_time()
        except BaseException:
            if tier is not None and fill is not None:
                tier.abandon(fill)
            raise
        answer = self._core.serve(key, raw, floor, type_, fill)
        if isinstance(answer, int):
            return self._wait(key, floor, answer, timeout_seconds, type_)
        return answer

    def know_the_time(self) -> None:
        """Learn Redis' time, where it was never asked; have it learnt again, off the caller's path, every 10 s."""
        clock = self._link.health.clock
        if not clock.is_known:
            self._link.learn_clock()
        elif clock.is_due_once():
            self._publisher.do_soon(self._relearn_clock)

    def _relearn_clock(self) -> None:
        with suppress(CacheUnavailable):  # the reads themselves say so
            self._link.learn_clock()

    def _wait(self, key: CacheKey, floor: Floor, seen_token: int, timeout_seconds: float, type_: Any) -> Answer:
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
        return self._core.waited(key, raw, type_)

    def _share(self, key: CacheKey, timeout_seconds: float) -> tuple[bytes, bool]:
        try:
            return self._flights.share(
                key.entry, timeout_seconds, lambda left, begins: self._driver.wait(key, PLAIN, 0, left, begins)
            )
        except WaitTimeout:
            raise
        except TimeoutError:
            raise WaitTimeout(key.query, timeout_seconds, "waiting with others") from None
