"""The async reader behind Sentinels, cancelled wherever it awaits something; alone: `reader/test_cancellations.py`."""

from __future__ import annotations

import asyncio
from itertools import count

from api_client import AsyncCacheClient, ReaderSettings
from refresher.embedded import RedisServer
from tests.integration.topologies.conftest import TIMEOUT_SECONDS
from tests.servers.redis_sentinels import Sentinels
from tests.support.cancelling import CancelledAt, CancelPoint
from tests.support.waiting import eventually


def test_a_step_cancelled_while_it_queries_the_sentinels_is_cancelled(
    sentinels: Sentinels, clean_redis: RedisServer
) -> None:
    settings = ReaderSettings(
        redis_url=sentinels.url(), broker_url=clean_redis.url(1), redis_timeout_seconds=TIMEOUT_SECONDS
    )

    async def is_cancelled(number: int, moment: CancelPoint) -> bool:
        client = AsyncCacheClient(settings)
        # It has a connection now, and the step checks whether that still leads to the master.
        await client.explain("q")
        step = CancelledAt(client.invalidate("q", version=1), number, moment)
        (end,) = await asyncio.gather(asyncio.create_task(step.run()), return_exceptions=True)
        assert isinstance(end, asyncio.CancelledError) == step.has_cancelled, (number, moment, end)
        assert (await client.invalidate("q")).generation
        await client.close()
        # A query that was begun ends by itself; a loop that ended before would leave a connection to a Sentinel.
        loop = asyncio.get_running_loop()
        await asyncio.to_thread(eventually, lambda: len(asyncio.all_tasks(loop)) == 1, "no task is left but this")
        return step.has_cancelled

    for moment in CancelPoint:
        awaits = next(number for number in count() if not asyncio.run(is_cancelled(number, moment)))
        assert awaits >= 2, moment
