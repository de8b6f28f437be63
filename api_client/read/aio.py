"""The way of async reads: as `api_client.read.sync`, awaited. What a read decides stands in `read.core`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeAlias

from redis.exceptions import RedisError

from api_client.config.settings import ReaderSettings
from api_client.errors import CacheError, CacheUnavailable, WaitTimeout, twin
from api_client.protocol.clock import monotonic_seconds
from api_client.protocol.keys import CacheKey
from api_client.protocol.lease import ClaimReply
from api_client.protocol.model import Answer
from api_client.read.batch import Batch
from api_client.read.coalescing import ReadBegins
from api_client.read.core import ReadCore
from api_client.read.evaluate import PLAIN, Freshness
from api_client.read.pending import PendingRead
from api_client.read.sync import PendingRefresh
from api_client.read.wait_plan import Claim, Pause, Publish, Read, Reply, Republish, Step
from api_client.transport.aio_link import AsyncCacheLink
from api_client.transport.link import CacheLink
from api_client.transport.pubsub import Notifications
from api_client.trigger.publisher import Publisher


class AsyncWaitDriver:
    """Waits for an entry that is good enough, without holding the event loop."""

    def __init__(
        self, link: AsyncCacheLink, publisher: Publisher, notifications: Notifications, settings: ReaderSettings
    ) -> None:
        self._link, self._publisher, self._settings = link, publisher, settings
        self._notifications = notifications

    async def wait(
        self,
        key: CacheKey,
        floor: Freshness,
        seen_token: int,
        timeout_seconds: float,
        read_begins: Callable[[], None] = lambda: None,
        asked: ClaimReply | None = None,
    ) -> bytes:
        """Return the bytes of an entry that is good enough; arguments and errors as for `SyncWaitRunner.wait`."""
        steps = PendingRefresh(key, floor, seen_token, timeout_seconds, self._settings, self._publisher, asked)
        notified, loop = asyncio.Event(), asyncio.get_running_loop()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(notified.set)

        listener = None
        try:
            listener = self._notifications.listen({key.channel: wake})
            step = next(steps.plan)
            while True:
                step = steps.plan.send(await self._done(step, steps, notified, read_begins))
        except StopIteration as done:
            raw: bytes = done.value
            return raw
        except WaitTimeout as timeout:
            told = steps.explained(timeout)
            raise told from told.__cause__
        finally:
            if listener is not None:
                listener.close()

    async def _done(
        self, step: Step, steps: PendingRefresh, notified: asyncio.Event, read_begins: Callable[[], None]
    ) -> Reply:
        try:
            reply = await self._do(step, steps, notified, read_begins)
        except CacheUnavailable:
            if not steps.may_repeat():
                raise
            reply = await self._do(step, steps, notified, read_begins)
        steps.answered()
        return reply

    async def _do(
        self, step: Step, steps: PendingRefresh, notified: asyncio.Event, read_begins: Callable[[], None]
    ) -> Reply:
        match step:
            case Pause(duration_seconds):
                with suppress(TimeoutError):
                    async with asyncio.timeout(duration_seconds):
                        await notified.wait()
                came = notified.is_set()
                notified.clear()
                return came
            case Read():
                read_begins()
                return await self._link.read(steps.key), await self._link.now_us()
            case Claim() | Republish():
                return await self._link.run(steps.call(step), steps.key.query)
            case Publish(claim_number):
                steps.publish(claim_number)
                return None


AsyncLead: TypeAlias = Callable[[float, ReadBegins], Awaitable[bytes]]
Key: TypeAlias = tuple[int, str]


class _Flight:
    """One wait: its task, when that one's time is over, what came of it, and those who wait for it."""

    __slots__ = ("ends_at", "error", "is_over", "raw", "read_began_at", "task", "waiting")

    def __init__(self, ends_at: float) -> None:
        self.ends_at = ends_at
        self.read_began_at = 0.0
        self.task: asyncio.Task[None] | None = None
        self.raw: bytes | None = None
        self.error: Exception | None = None
        self.is_over = False
        self.waiting: set[asyncio.Future[None]] = set()


class AsyncFlights:
    """The waits under way, by event loop and entry key. Waiters share the bytes, never a decoded value.

    An exception from a signal handler may leave this at any point: what is registered is undone, and whoever waits is
    woken.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._flights: dict[Key, _Flight] = {}

    async def share(self, entry_key: str, timeout_seconds: float, lead: AsyncLead) -> tuple[bytes, bool]:
        """Return the entry's bytes, and whether another caller's wait brought them.

        The rules are those of `SingleFlight.share`. A cancelled waiter leaves the wait to the others; the wait ends
        when none is left.

        Raises:
            TimeoutError: a follower's own time ran out first.
            CacheError: what ``lead`` raised; each who shares it gets an error of its own.
            Exception: anything else that ``lead`` raised, for the first caller alone; the others lead on.
        """
        came_at = self._monotonic()
        deadline = came_at + timeout_seconds
        loop = asyncio.get_running_loop()
        key = (id(loop), entry_key)
        while True:
            flight = own = _Flight(deadline)
            waiter: asyncio.Future[None] = loop.create_future()
            # Twice, for an exception from a signal handler may cut the first one short.
            try:
                try:
                    flight = self._join(key, own, lead, loop)
                    await self._landed(flight, waiter, deadline)
                finally:
                    self._leave(key, flight, waiter)
            finally:
                self._leave(key, flight, waiter)
            leads = flight is own
            if flight.raw is not None and (leads or flight.read_began_at >= came_at):
                return flight.raw, not leads
            error = flight.error
            if error is not None and (leads or (isinstance(error, CacheError) and not isinstance(error, WaitTimeout))):
                raise error if leads else twin(error)
            if self._monotonic() >= deadline:
                raise TimeoutError

    def _join(self, key: Key, own: _Flight, lead: AsyncLead, loop: asyncio.AbstractEventLoop) -> _Flight:
        """Return the flight to follow; ``own``, begun and registered, where there is none."""
        flight = self._flights.get(key)
        if flight is not None and flight.task is not None and not flight.task.done():
            return flight
        own.task = loop.create_task(self._fly(key, own, lead))
        # Again, for an exception from a signal handler may end the task before its own landing.
        own.task.add_done_callback(lambda _: self._land(key, own))
        self._flights[key] = own
        return own

    async def _fly(self, key: Key, flight: _Flight, lead: AsyncLead) -> None:
        def read_begins() -> None:
            flight.read_began_at = self._monotonic()

        try:
            flight.raw = await lead(flight.ends_at - self._monotonic(), read_begins)
        except Exception as error:  # noqa: BLE001 - raised by those who wait
            flight.error = error
        finally:
            self._land(key, flight)

    async def _landed(self, flight: _Flight, waiter: asyncio.Future[None], deadline: float) -> None:
        """Return when it is over.

        Raises:
            TimeoutError: this caller's time ran out first.
        """
        flight.waiting.add(waiter)
        if flight.is_over:
            return
        # Who waits no shorter than the flight lasts needs no timer of its own.
        if deadline >= flight.ends_at:
            await waiter
            return
        timer = waiter.get_loop().call_later(max(0.0, deadline - self._monotonic()), _wake, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
        if not flight.is_over:
            raise TimeoutError

    def _leave(self, key: Key, flight: _Flight, waiter: asyncio.Future[None]) -> None:
        flight.waiting.discard(waiter)
        if not flight.waiting and not flight.is_over and flight.task is not None:
            self._forget(key, flight)
            flight.task.cancel()

    def _land(self, key: Key, flight: _Flight) -> None:
        # Gone before it is over: whoever comes now looks at the entry for itself.
        self._forget(key, flight)
        flight.is_over = True
        for waiter in flight.waiting:
            _wake(waiter)

    def _forget(self, key: Key, flight: _Flight) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class AsyncReadPath:
    """Reads entries on an event loop; ``sync_link`` is for what the publisher's thread does."""

    def __init__(
        self,
        core: ReadCore,
        link: AsyncCacheLink,
        sync_link: CacheLink,
        publisher: Publisher,
        driver: AsyncWaitDriver,
    ) -> None:
        self._core, self._link, self._sync_link, self._publisher = core, link, sync_link, publisher
        self._driver = driver
        self._flights = AsyncFlights(monotonic_seconds)

    async def read(self, key: CacheKey, floor: Freshness, timeout_seconds: float, type_: Any) -> Answer:
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
                # Written out here: each read would pay for a coroutine around it.
                reading = self._link.begin_read(key)
                if reading is None:
                    raw = await self._link.read(key)
                else:
                    try:
                        raw = self._link.end_read(await reading, key)
                    except RedisError as error:
                        raw = await self._link.read_again(key, error)
                clock = self._link.health.clock
                if clock.is_due_once():
                    if clock.is_known:
                        self._publisher.run_in_background(self._relearn_clock)
                    else:
                        await self._link.learn_clock()
            except BaseException:
                self._core.abandon(fill)
                raise
            answer = self._core.serve(key, raw, floor, type_, fill)
            if isinstance(answer, int):
                miss = PendingRead(self._core, key, floor, answer, timeout_seconds)
                with self._core.spans.waiting([key]):
                    return miss.answer(await self._wait(miss), type_)
        except CacheError as error:
            self._core.record_failure(key, error)
            raise
        return answer

    async def read_all(self, batch: Batch) -> None:
        """Answer all of a batch: what is there in one write, the rest by waits that go on together."""
        batch.serve_local()
        keys = batch.begin()
        if not keys:
            return
        try:
            found = await self._link.read_all(keys)
            await self._link.now_us()
            misses = batch.serve(found)
        except CacheUnavailable as error:
            batch.abandon()
            batch.fail(error)
            return
        except BaseException:
            batch.abandon()
            raise
        if misses:
            with self._core.spans.waiting([miss.key for miss in misses]):
                batch.end(await asyncio.gather(*map(self._waited, misses)))

    async def _waited(self, miss: PendingRead) -> bytes | CacheError:
        try:
            return await self._wait(miss)
        except CacheError as error:
            return error

    def _relearn_clock(self) -> None:
        with suppress(CacheUnavailable):  # the reads themselves say so
            self._sync_link.learn_clock()

    async def _wait(self, miss: PendingRead) -> bytes:
        if miss.may_share:
            try:
                raw, followed = await self._flights.share(
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
        return await self._driver.wait(miss.key, miss.floor, miss.seen_token, miss.left_seconds)
