"""The way of sync reads through the process: the tier, the entry in Redis, or a wait with others."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from api_client.answers import Answer
from api_client.batches import Batch
from api_client.clock import monotonic_seconds
from api_client.errors import CacheError, CacheUnavailable, WaitTimeout
from api_client.flights import Flights
from api_client.judging import PLAIN, Floor
from api_client.keys import CacheKey
from api_client.link import CacheLink
from api_client.misses import Miss
from api_client.publisher import Publisher
from api_client.read_core import ReadCore
from api_client.waits import WaitDriver


class ReadPath:
    """Reads entries on the calling thread. Thread-safe."""

    def __init__(self, core: ReadCore, link: CacheLink, publisher: Publisher, driver: WaitDriver) -> None:
        self._core, self._link, self._publisher, self._driver = core, link, publisher, driver
        self._flights = Flights(monotonic_seconds)

    def read(self, key: CacheKey, floor: Floor, timeout_seconds: float, type_: Any) -> Answer:
        """Return the answer: at once where there is an entry that is good enough, else as soon as there is.

        Raises:
            RefreshFailed, WaitTimeout, CacheUnavailable, DecodeError.
        """
        try:
            if self._core.tier is not None and (local := self._core.serve_local(key, floor, type_)) is not None:
                return local
            fill = None
            try:
                fill = self._core.begin(key)
                raw = self._link.read(key)
                self._know_the_time()
            except BaseException:
                self._core.abandon(fill)
                raise
            answer = self._core.serve(key, raw, floor, type_, fill)
            if isinstance(answer, int):
                miss = Miss(self._core, key, floor, answer, timeout_seconds)
                with self._core.spans.waiting([key]):
                    return miss.answer(self._wait(miss), type_)
        except CacheError as error:
            self._core.tell_failed(key, error)
            raise
        return answer

    def read_all(self, batch: Batch) -> None:
        """Answer all of a batch: what is there in one round trip, the rest by waits that go on together.

        The errors are those of `read`; each is its item's answer.
        """
        batch.serve_local()
        keys = batch.begin()
        if not keys:
            return
        try:
            found = self._link.read_all(keys)
            self._know_the_time()
            misses = batch.serve(found)
        except CacheUnavailable as error:
            batch.abandon()
            batch.fail(error)
            return
        except BaseException:
            batch.abandon()
            raise
        if misses:
            steps = [self._driver.steps(miss.key, miss.floor, miss.seen_token, miss.left_seconds) for miss in misses]
            with self._core.spans.waiting([miss.key for miss in misses]):
                batch.end(self._driver.wait_all(steps))

    def _know_the_time(self) -> None:
        """Learn Redis' time, where it was never asked; have it learnt again, off the caller's path, every 10 s."""
        clock = self._link.health.clock
        if clock.is_due_once():
            if clock.is_known:
                self._publisher.do_soon(self._relearn_clock)
            else:
                self._link.learn_clock()

    def _relearn_clock(self) -> None:
        with suppress(CacheUnavailable):  # the reads themselves say so
            self._link.learn_clock()

    def _wait(self, miss: Miss) -> bytes:
        if miss.may_share:
            try:
                raw, followed = self._flights.share(
                    miss.key.entry,
                    miss.left_seconds,
                    lambda left, begins: self._driver.wait(miss.key, PLAIN, 0, left, begins),
                )
            except WaitTimeout:
                raise
            except TimeoutError:
                raise miss.timed_out() from None
            if miss.takes(raw, followed=followed):
                return raw
        return self._driver.wait(miss.key, miss.floor, miss.seen_token, miss.left_seconds)
