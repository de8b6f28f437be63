"""cashews: its early refresh on Redis, and its in-process tier."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

from benchmarks.contenders.contender import AsyncContender
from benchmarks.payloads import Value
from benchmarks.seeding import QUERY, TTL_SECONDS


class _Cashews(AsyncContender):
    needs: ClassVar[tuple[str, ...]] = ("cashews",)
    client_side: ClassVar[bool] = False

    async def set_up(self) -> None:
        from cashews import Cache

        self._cache = Cache()
        if self.client_side:
            prefix = f"{self.course.place.namespace}:cashews-local:"
            self._cache.setup(self.course.place.cache_url, client_side=True, client_side_prefix=prefix)
        else:
            self._cache.setup(self.course.place.cache_url)
        await self._cache.init()
        await self._fill()

    @abstractmethod
    async def _fill(self) -> None:
        """Put a value under every number."""

    async def close(self) -> None:
        await self._cache.close()


class CashewsEarly(_Cashews):
    """``@cache.early`` on Redis; pickle, its default."""

    title = "cashews early"

    async def _fill(self) -> None:
        values = {number: self.course.value_of(number) for number in self.course.numbers}

        async def friends_of(person_id: int) -> Value:
            return values.pop(person_id)  # once: a second call is no hit, and fails

        remembered = self._cache.early(
            ttl=TTL_SECONDS * 2,
            early_ttl=TTL_SECONDS,
            key=f"{QUERY}:{{person_id}}",
            prefix=f"{self.course.place.namespace}:cashews:{type(self).__name__}",
        )
        self._friends_of: Any = remembered(friends_of)
        for number in self.course.numbers:
            await self._friends_of(number)

    def reader(self) -> Callable[[int], Awaitable[Value]]:
        friends_of: Callable[[int], Awaitable[Value]] = self._friends_of
        return friends_of


class CashewsClientSideEarly(CashewsEarly):
    """``@cache.early`` on its in-process tier."""

    title = "cashews client_side early"
    is_local = True
    client_side = True


class CashewsClientSideGet(_Cashews):
    """``cache.get`` on its in-process tier: no decision at all."""

    title = "cashews client_side get"
    is_local = True
    client_side = True

    async def _fill(self) -> None:
        for number in self.course.numbers:
            await self._cache.set(f"{QUERY}:{number}", self.course.value_of(number), expire=TTL_SECONDS)

    def reader(self) -> Callable[[int], Awaitable[Value]]:
        get = self._cache.get
        return lambda number: get(f"{QUERY}:{number}")
