"""Sentinel, awaited; as `api_client.transport.sentinel`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, TimeoutError

from api_client.config.redis_url import Address
from api_client.transport.sentinel import MasterAddress, MasterSearch, sentinel_options


class AsyncSentinelResolver(MasterSearch):
    """Finds the master at each connecting, on any event loop; arguments as for `SentinelResolver`.

    An event loop has one connection, so nothing is kept open to the Sentinels.
    """

    def __init__(
        self,
        known: MasterAddress,
        master_name: str,
        members: Sequence[Address],
        options: dict[str, Any],
        *,
        timeout_seconds: float,
    ) -> None:
        super().__init__(known, master_name)
        self._members = list(members)
        self._polls: set[asyncio.Task[None]] = set()  # an event loop holds its tasks weakly
        self._options = sentinel_options(options, members, timeout_seconds, Retry(NoBackoff(), 0))

    async def get_master_address(self) -> Address:
        """Return the master's address, as `SentinelResolver.get_master_address`."""
        return self._found_or_known(await self._ask())

    async def poll(self) -> None:
        """Ask where that is due, as `SentinelResolver.poll`; a connection to another node is left when it returns."""
        if self._is_due_once():
            # A task of its own: before Python 3.12 redis.asyncio may keep to itself that the caller is cancelled.
            polling = asyncio.get_running_loop().create_task(self._poll())
            self._polls.add(polling)
            polling.add_done_callback(self._polls.discard)
            await asyncio.shield(polling)
            await asyncio.sleep(0)  # the owner of the connection is notified in the loop's next round

    async def _poll(self) -> None:
        try:
            found = await self._ask()
        except (ConnectionError, TimeoutError):
            found = None
        self._polled(found)

    async def _ask(self) -> Address | None:
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
        self._known.update(address)
        return address


def _address_of(client: Any) -> Address:
    parts = client.connection_pool.connection_kwargs
    return parts["host"], parts["port"]
