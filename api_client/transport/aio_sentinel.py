"""Asks Sentinels where the master is, awaited; as `api_client.transport.sentinel`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, TimeoutError

from api_client.config.redis_url import Address
from api_client.transport.sentinel import IS_MASTER, MasterAddress, RateLimiter, sentinel_options


class AsyncMasterFinder:
    """Finds the master at each connecting, on any event loop; arguments as for `SentinelResolver`.

    An event loop has one connection, so nothing is kept open to the Sentinels.
    """

    is_master = IS_MASTER
    check_connection = False

    def __init__(
        self,
        known: MasterAddress,
        master_name: str,
        members: Sequence[Address],
        options: dict[str, Any],
        *,
        timeout_seconds: float,
    ) -> None:
        self._known, self._master_name, self._members = known, master_name, list(members)
        self._look_times = RateLimiter()
        self._looking: set[asyncio.Task[None]] = set()  # an event loop holds its tasks weakly
        self._options = sentinel_options(options, members, timeout_seconds, Retry(NoBackoff(), 0))

    async def get_master_address(self) -> Address:
        """Return the master's address, as `SentinelResolver.get_master_address`."""
        return await self._asked() or self._known.require(self._master_name)

    async def look(self) -> None:
        """Poll where that is due, as `SentinelResolver.look`; a connection to another node is left when it returns."""
        if self._look_times.is_due():
            # A task of its own: before Python 3.12 redis.asyncio may keep to itself that the caller is cancelled.
            looking = asyncio.get_running_loop().create_task(self._look())
            self._looking.add(looking)
            looking.add_done_callback(self._looking.discard)
            await asyncio.shield(looking)
            await asyncio.sleep(0)  # who has the connection is told in the loop's next round

    async def _look(self) -> None:
        try:
            told = await self._asked()
        except (ConnectionError, TimeoutError):
            told = None
        if told is None:
            self._look_times.back_off()

    async def _asked(self) -> Address | None:
        sentinel = Sentinel(self._members, sentinel_kwargs=self._options)  # type: ignore[no-untyped-call]
        try:
            host, port = await sentinel.discover_master(self._master_name)
        except MasterNotFoundError:
            return None
        finally:
            await sentinel.aclose()
        # It puts the one that has answered first: so it is asked first the next time.
        self._members = [_address_of(one) for one in sentinel.sentinels]
        address = str(host), int(port)
        self._known.found(address)
        return address


def _address_of(client: Any) -> Address:
    parts = client.connection_pool.connection_kwargs
    return parts["host"], parts["port"]
