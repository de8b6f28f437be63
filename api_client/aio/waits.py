"""Drives a wait plan on an event loop: each step of the plan is one await here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from api_client.aio.link import AsyncCacheLink
from api_client.errors import CacheUnavailable, WaitTimeout
from api_client.judging import Floor
from api_client.keys import CacheKey
from api_client.lease import ClaimReply
from api_client.notifications import Notifications
from api_client.publisher import Publisher
from api_client.read_plan import AskClaim, AskRepublish, Pause, Publish, Read, Reply, Step
from api_client.settings import ReaderSettings
from api_client.waits import WaitSteps


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
        floor: Floor,
        seen_token: int,
        timeout_seconds: float,
        read_begins: Callable[[], None] = lambda: None,
        asked: ClaimReply | None = None,
    ) -> bytes:
        """Return the bytes of an entry that is good enough; arguments and errors as for `WaitDriver.wait`."""
        steps = WaitSteps(key, floor, seen_token, timeout_seconds, self._settings, self._publisher, asked)
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
        self, step: Step, steps: WaitSteps, notified: asyncio.Event, read_begins: Callable[[], None]
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
        self, step: Step, steps: WaitSteps, notified: asyncio.Event, read_begins: Callable[[], None]
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
            case AskClaim() | AskRepublish():
                return await self._link.run(steps.call(step), steps.key.query)
            case Publish(claim_number):
                steps.publish(claim_number)
                return None
