"""The typed handle of a query on an async client."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar, Unpack, overload

from api_client.aio.client import AsyncCacheClient
from api_client.answers import Entry, Invalidation, RefreshState
from api_client.described import DescribedQuery, QueryOptions
from api_client.durations import Duration
from api_client.errors import CacheError
from api_client.explain import Explanation
from api_client.keys import CacheKey
from api_client.params import Params

P = ParamSpec("P")
T = TypeVar("T")
D = TypeVar("D")


@dataclass(frozen=True, slots=True, init=False, repr=False)
class AsyncCachedQuery(DescribedQuery[P, T]):
    """A query on an async client: the methods of `CachedQuery`, awaited. `CachedQuery.on` makes it."""

    _client: AsyncCacheClient

    async def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the value for these params; as `CachedQuery.__call__`."""
        params = self._params(args, kwargs)
        value: T = await self._client.get(self.name, params, type=self.returns, **self._options)
        return value

    @overload
    async def get(self, params: Params | None = None, **options: Unpack[QueryOptions]) -> T: ...
    @overload
    async def get(self, params: Params | None = None, *, default: D, **options: Unpack[QueryOptions]) -> T | D: ...
    async def get(self, params: Params | None = None, **options: Any) -> Any:
        """Return the value, with options for this read; as `CachedQuery.get`."""
        return await self._client.get(self.name, params, **self._merged(options))

    async def get_entry(self, params: Params | None = None, **options: Unpack[QueryOptions]) -> Entry[T]:
        """Return the value with all that the cache knows of it; as `CachedQuery.get_entry`."""
        entry: Entry[T] = await self._client.get_entry(self.name, params, **self._merged(options))
        return entry

    async def many(self, many: Iterable[Params | None], **options: Unpack[QueryOptions]) -> list[Entry[T] | CacheError]:
        """Read for many params at once; as `CachedQuery.many`."""
        calls, shared = self._batch(many, options)
        return await self._client.get_many(calls, **shared)

    async def refresh(
        self, params: Params | None = None, *, wait: bool = False, timeout: Duration | None = None
    ) -> RefreshState:
        """Claim and publish a refresh now; as `CachedQuery.refresh`."""
        timeout = self._options.get("timeout") if timeout is None else timeout
        return await self._client.refresh(self.name, params, version=self.version, wait=wait, timeout=timeout)

    async def invalidate(
        self,
        params: Params | None = None,
        *,
        hard: bool = False,
        bookmarks: Collection[str] = (),
        replicas: int = 0,
    ) -> Invalidation:
        """Make the value stale from now on, or gone, in every version; as `CachedQuery.invalidate`."""
        return await self._client._invalidate(  # noqa: SLF001 - its own version, and all others
            self.key(params), all_versions=True, hard=hard, bookmarks=bookmarks, replicas=replicas
        )

    async def explain(self, params: Params | None = None) -> Explanation:
        """Explain why the value is refreshed now or not; as `CachedQuery.explain`."""
        return await self._client.explain(self.name, params, version=self.version)

    def key(self, params: Params | None = None) -> CacheKey:
        """Return what the cache calls this value's entry and lease record."""
        return self._client.key(self.name, params, version=self.version)
