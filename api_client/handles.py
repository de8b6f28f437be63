"""Typed handles: a query's name, version and type stand in one place, and calls of it are checked by the type checker.

::

    friends_of = CachedQuery("friends_of", returns=list[Friend], max_age="10m")

    friends_of(person_id=42)  # list[Friend]
    friends_of.get({"person_id": 42}, timeout="200ms", default=None)  # list[Friend] | None

With the params checked too, from a signature alone; its body is never run::

    @cached_query("friends_of")
    def friends_of(person_id: int) -> list[Friend]:
        raise NotImplementedError

    friends_of(person_id=42)  # list[Friend]; friends_of(person="Ada") is an error of the type checker
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, cast, overload

from api_client.aio.client import AsyncCacheClient
from api_client.aio.handles import AsyncCachedQuery
from api_client.answers import Entry, Invalidation, RefreshState
from api_client.default_client import default_async_client, default_client
from api_client.described import DescribedQuery, QueryOptions, fill
from api_client.durations import Duration
from api_client.errors import CacheError, InvalidQuery
from api_client.explain import Explanation
from api_client.keys import CacheKey
from api_client.params import Params
from api_client.reader import CacheClient
from api_client.signatures import Signature, returned_type

if TYPE_CHECKING:
    # Known to type checkers without being installed; nothing of it is needed at run time.
    from typing_extensions import TypeForm

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
D = TypeVar("D")


@dataclass(frozen=True, slots=True, init=False, repr=False)
class CachedQuery(DescribedQuery[P, T]):
    """A query with the type of its value. Immutable and hashable; made at import, no client and no network needed.

    A call names the query's params and nothing else, so no param can clash with an option: `timeout` in
    ``friends_of(timeout=3)`` is a param. Options for one read go to `get` and `get_entry`, where the params are one
    mapping; those for all reads are given here.

    What a call returns is inferred of any ``returns``, unions too, by type checkers that know TypeForm (mypy ≥ 2.2,
    basedpyright). Params are checked where `cached_query` declares them.

    All methods use the process's default client, looked up at each call, unless the handle is bound to one by `on`.
    Their errors are those of the client's methods of the same names.

    Args:
        name: the name under which a worker has registered the query.
        returns: what to decode into: a dataclass, msgspec.Struct, TypedDict, ``list[Friend]``, ``Friend | None`` …
        version: the schema version that ``returns`` describes.
        max_age: for all reads: the value's load began at most this long ago. Default: any age within the grace.
        timeout: for all reads: how long to wait where a wait is needed. Default: STAMPEDE_WAIT_TIMEOUT_MS.

    Raises:
        InvalidQuery: the name, version, type or an option is wrong. So it comes at import, not at the first read.
    """

    _client: CacheClient | None

    def __init__(
        self: CachedQuery[..., R],
        name: str,
        *,
        returns: TypeForm[R],
        version: int = 1,
        max_age: Duration | None = None,
        timeout: Duration | None = None,
    ) -> None:
        self._describe(name, returns, version, max_age, timeout)
        fill(self, _client=None)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the value for these params: at once while there is one within its grace. As `CacheClient.get`."""
        client = self._client if self._client is not None else default_client()
        params = self._params(args, kwargs)
        value: T
        if self._options:
            value = client.get(self.name, params, type=self.returns, **self._options)
        else:  # worth a branch: a hit of the in-process tier takes little longer than an empty ** does
            value = client.get(self.name, params, type=self.returns)
        return value

    async def aget(self, /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the value as a call does, awaited, through the process's default async client.

        Everything else that an async application needs is on `on`: ``friends_of.on(client).get_entry(…)``.

        Raises:
            InvalidQuery: the handle is bound to a sync client; and the errors of `AsyncCacheClient.get`.
        """
        if self._client is not None:
            raise InvalidQuery(f"{self.name!r} is bound to a sync client; bind it to an async one", query=self.name)
        params = self._params(args, kwargs)
        value: T = await default_async_client().get(self.name, params, type=self.returns, **self._options)
        return value

    @overload
    def get(self, params: Params | None = None, **options: Unpack[QueryOptions]) -> T: ...
    @overload
    def get(self, params: Params | None = None, *, default: D, **options: Unpack[QueryOptions]) -> T | D: ...
    def get(self, params: Params | None = None, **options: Any) -> Any:
        """Return the value, with options for this read; they go before the handle's own. As `CacheClient.get`."""
        return self._reader().get(self.name, params, **self._merged(options))

    def get_entry(self, params: Params | None = None, **options: Unpack[QueryOptions]) -> Entry[T]:
        """Return the value with all that the cache knows of it. As `CacheClient.get_entry`."""
        return self._reader().get_entry(self.name, params, **self._merged(options))

    def many(self, many: Iterable[Params | None], **options: Unpack[QueryOptions]) -> list[Entry[T] | CacheError]:
        """Read for many params at once, in one round trip. As `CacheClient.get_many`: an entry or an error for each."""
        calls, shared = self._batch(many, options)
        return self._reader().get_many(calls, **shared)

    def refresh(
        self, params: Params | None = None, *, wait: bool = False, timeout: Duration | None = None
    ) -> RefreshState:
        """Claim and publish a refresh now. As `CacheClient.refresh`."""
        timeout = self._options.get("timeout") if timeout is None else timeout
        return self._reader().refresh(self.name, params, version=self.version, wait=wait, timeout=timeout)

    def invalidate(
        self,
        params: Params | None = None,
        *,
        hard: bool = False,
        bookmarks: Collection[str] = (),
        replicas: int = 0,
    ) -> Invalidation:
        """Make the value stale from now on, or gone, in every version. As `CacheClient.invalidate`."""
        return self._reader()._invalidate(  # noqa: SLF001 - its own version, and all others
            self.key(params), all_versions=True, hard=hard, bookmarks=bookmarks, replicas=replicas
        )

    def explain(self, params: Params | None = None) -> Explanation:
        """Explain why the value is refreshed now or not. As `CacheClient.explain`."""
        return self._reader().explain(self.name, params, version=self.version)

    def key(self, params: Params | None = None) -> CacheKey:
        """Return what the cache calls this value's entry and lease record. As `CacheClient.key`."""
        return self._reader().key(self.name, params, version=self.version)

    @overload
    def on(self, client: CacheClient) -> CachedQuery[P, T]: ...
    @overload
    def on(self, client: AsyncCacheClient) -> AsyncCachedQuery[P, T]: ...
    def on(self, client: CacheClient | AsyncCacheClient) -> CachedQuery[P, T] | AsyncCachedQuery[P, T]:
        """Return the same query, read through ``client`` in place of the process's default one.

        On an async client its methods have the same names, and are awaited.
        """
        if isinstance(client, AsyncCacheClient):
            bound: AsyncCachedQuery[P, T] = AsyncCachedQuery.__new__(AsyncCachedQuery)
            fill(
                bound, name=self.name, returns=self.returns, version=self.version, _options=self._options,
                _signature=self._signature, _client=client,
            )  # fmt: skip
            return bound
        changed = copy.copy(self)
        fill(changed, _client=client)
        return changed

    def _reader(self) -> CacheClient:
        return self._client if self._client is not None else default_client()


def cached_query(
    name: str, *, version: int = 1, max_age: Duration | None = None, timeout: Duration | None = None
) -> Callable[[Callable[P, T]], CachedQuery[P, T]]:
    """Make a `CachedQuery` of a function's signature: its params and the type that it returns. Its body is never run.

    Params may be given by position then; a default is sent like any other value, so that one value has one key.

    Args:
        name, version, max_age, timeout: as for `CachedQuery`.

    Raises:
        InvalidQuery: as for `CachedQuery`; or the signature has no return type, a name in it that can't be resolved,
            or a parameter that is no named one (``*args``, ``**kwargs``, positional-only).
    """

    def declare(function: Callable[P, T]) -> CachedQuery[P, T]:
        signature = Signature.of(name, function)
        declared: CachedQuery[..., T] = CachedQuery(
            name, returns=returned_type(name, function), version=version, max_age=max_age, timeout=timeout
        )
        fill(declared, _signature=signature)
        return cast("CachedQuery[P, T]", declared)

    return declare
