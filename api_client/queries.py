"""Typed query handles: name, version and type of a query in one place, for calls that a type checker checks.

::

    friends_of = CachedQuery("friends_of", returns=list[Friend], max_age="10m")

    friends_of(person_id=42)  # list[Friend]
    friends_of.of(person_id=42).get(timeout="200ms", default=None)  # list[Friend] | None
    friends_of.of(person_id=42).invalidate()

A signature lets it check the params too; the function's body is never run::

    @cached_query("friends_of")
    def friends_of(person_id: int) -> list[Friend]:
        raise NotImplementedError

    friends_of(person_id=42)  # list[Friend]; friends_of(person="Ada") is an error of the type checker
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, Self, TypeVar, Unpack, cast, overload

from api_client.aio import AsyncCacheClient
from api_client.client import CacheClient
from api_client.client_base import ClientBase
from api_client.config.durations import Duration
from api_client.default import default_async_client, default_client
from api_client.errors import CacheError, InvalidQuery
from api_client.explain import Explanation
from api_client.protocol.keys import CacheKey, check_query_name, check_version
from api_client.protocol.model import Entry, Invalidation, RefreshState
from api_client.protocol.params import Params
from api_client.protocol.payload import check_type
from api_client.read.batch import QueryCall
from api_client.read.requirements import QueryOptions, parse_duration

if TYPE_CHECKING:
    # Type checkers know it without an installation; nothing of it is needed at run time.
    from typing_extensions import TypeForm

P = ParamSpec("P")
T = TypeVar("T")
D = TypeVar("D")
R = TypeVar("R")


_FLOATS: Final = (float, float | None)
_MAX_EXACT: Final = 2**53


@dataclass(frozen=True, slots=True)
class _Signature:
    """The params that a function declares, with the names of its floats.

    ``whole`` is for errors, since it is too slow for correct calls.
    """

    names: tuple[str, ...]
    positional: tuple[str, ...]
    defaults: dict[str, Any] = field(hash=False)
    floats: tuple[str, ...]
    whole: inspect.Signature = field(hash=False)

    @classmethod
    def of(cls, query: str, function: Callable[..., Any], hints: Mapping[str, Any]) -> _Signature:
        """Return the params of ``function``.

        Raises:
            InvalidQuery: a parameter can't be given by name.
        """
        whole = inspect.signature(function)
        for parameter in whole.parameters.values():
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise InvalidQuery(f"{query!r}: {parameter} is not a named parameter", query=query)
        return cls(
            names=tuple(whole.parameters),
            positional=tuple(
                name for name, parameter in whole.parameters.items() if parameter.kind is not parameter.KEYWORD_ONLY
            ),
            defaults={
                name: parameter.default
                for name, parameter in whole.parameters.items()
                if parameter.default is not parameter.empty
            },
            floats=tuple(name for name in whole.parameters if hints.get(name) in _FLOATS),
            whole=whole,
        )

    def with_floats(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return the params with ints converted to floats where declared, because 1 and 1.0 have different keys."""
        for name in self.floats:
            value = params[name]
            if type(value) is int and -_MAX_EXACT <= value <= _MAX_EXACT:
                params = {**params, name: float(value)}
        return params

    def params(self, query: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the params of a call by their names.

        Raises:
            InvalidQuery: a param is missing, unknown or given twice.
        """
        params = {**self.defaults, **kwargs}
        by_position = self.positional[: len(args)]
        params.update(zip(by_position, args, strict=False))
        if (
            params.keys() != set(self.names)
            or len(by_position) < len(args)
            or (kwargs and not kwargs.keys().isdisjoint(by_position))
        ):
            try:
                self.whole.bind(*args, **kwargs)
            except TypeError as error:
                raise InvalidQuery(f"{query!r}: {error}", query=query) from None
        return params


def _hints(query: str, function: Callable[..., Any]) -> dict[str, Any]:
    """Return the types that a function declares, including ``return``.

    Raises:
        InvalidQuery: it declares no return type, or its annotations can't be resolved.
    """
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise InvalidQuery(f"{query!r}: its signature can't be resolved: {error}", query=query) from error
    if "return" not in hints:
        raise InvalidQuery(f"{query!r}: its signature has no return type", query=query)
    return hints


@dataclass(frozen=True, slots=True, init=False, repr=False)
class _QueryDescriptor(Generic[P, T]):
    """A query's name, version, type and options, and its params if they were declared. Immutable."""

    name: str
    returns: Any = field(hash=False)
    version: int
    _options: dict[str, Any] = field(hash=False)
    _signature: _Signature | None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}, version {self.version}>"

    def _describe(
        self, name: str, returns: object, version: int, max_age: Duration | None, timeout: Duration | None
    ) -> None:
        name = check_query_name(name)
        version = check_version(name, version)
        check_type(returns, "returns=", name)
        options: dict[str, Any] = {}
        # Only what differs from the client's defaults, since a read without options takes the shortest path.
        if version != 1:
            options["version"] = version
        if max_age is not None:
            options["max_age"] = parse_duration(name, "max_age", max_age)
        if timeout is not None:
            options["timeout"] = parse_duration(name, "timeout", timeout)
        _fill(self, name=name, returns=returns, version=version, _options=options, _signature=None)

    def _params(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Params:
        if self._signature is None:
            if not args:
                return kwargs
            raise InvalidQuery(
                f"{self.name!r}: params are passed by name, as in {self.name}(person_id=42)", query=self.name
            )
        is_whole = not args and tuple(kwargs) == self._signature.names
        params = kwargs if is_whole else self._signature.params(self.name, args, kwargs)
        return self._signature.with_floats(params) if self._signature.floats else params

    def _merged(self, options: Mapping[str, Any]) -> dict[str, Any]:
        fixed = options.keys() & {"version", "type"}
        if fixed:
            raise InvalidQuery(
                f"{self.name!r}: {min(fixed)} is the handle's own; make another CachedQuery for another one",
                query=self.name,
            )
        return {"type": self.returns, **self._options, **options}

    def _batch(self, calls: Iterable[QueryCall], options: Mapping[str, Any]) -> tuple[list[QueryCall], Any]:
        """Return the items of a batch, and the options for all of them."""
        shared = self._merged(options)
        del shared["type"]
        shared.pop("version", None)
        items = list(calls)
        for item in items:
            if not isinstance(item, _HandleCall) or item.query != self.name:
                raise InvalidQuery(f"{self.name!r}: calls are made by its method of()", query=self.name)
        return items, shared

    def _changed(self, handle: H, **fields: Any) -> H:
        """Make ``handle`` a copy of this one with other ``fields``."""
        kept = {name: getattr(self, name) for name in ("name", "returns", "version", "_options", "_signature")}
        _fill(handle, **kept, **fields)
        return handle


H = TypeVar("H", bound=_QueryDescriptor[..., Any])


def _fill(handle: _QueryDescriptor[..., Any], **fields: Any) -> None:
    """Set fields of a handle under construction."""
    for name, value in fields.items():
        object.__setattr__(handle, name, value)


class _HandleCall(QueryCall):
    """A query with its params, made by a handle; also an item for a client's `get_many`, which mixes queries."""

    handle: _QueryDescriptor[..., Any]

    @classmethod
    def _made(cls, handle: _QueryDescriptor[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Self:
        call = cls(handle.name, handle._params(args, kwargs), handle.version, handle.returns)  # noqa: SLF001
        call.handle = handle
        return call

    def key(self) -> CacheKey:
        """Return the key, with the names of its entry and lease record; as `CacheClient.key`."""
        return self._client.key(self.query, self.params, version=self.version)

    @property
    def _client(self) -> ClientBase:
        raise NotImplementedError

    def _options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return self.handle._merged(options)  # noqa: SLF001

    def _timeout(self, timeout: Duration | None) -> Duration | None:
        return self.handle._options.get("timeout") if timeout is None else timeout  # noqa: SLF001


class CachedCall(_HandleCall, Generic[T]):
    """A query with its params, and all operations on its value; made by `CachedQuery.of`.

    The errors are those of the `CacheClient` methods with the same names.
    """

    handle: CachedQuery[..., T]

    @overload
    def get(self, **options: Unpack[QueryOptions]) -> T: ...
    @overload
    def get(self, *, default: D, **options: Unpack[QueryOptions]) -> T | D: ...
    def get(self, **options: Any) -> Any:
        """Return the value, with options that override the handle's own; as `CacheClient.get`."""
        return self._client.get(self.query, self.params, **self._options(options))

    def get_entry(self, **options: Unpack[QueryOptions]) -> Entry[T]:
        """Return the value with all that the cache knows about it; as `CacheClient.get_entry`."""
        return self._client.get_entry(self.query, self.params, **self._options(options))

    def refresh(self, *, wait: bool = False, timeout: Duration | None = None) -> RefreshState:
        """Claim and publish a refresh now; as `CacheClient.refresh`."""
        timeout = self._timeout(timeout)
        return self._client.refresh(self.query, self.params, version=self.version, wait=wait, timeout=timeout)

    def invalidate(self, *, hard: bool = False, bookmarks: Collection[str] = (), replicas: int = 0) -> Invalidation:
        """Make the value stale, or drop it, in every version; as `CacheClient.invalidate`."""
        return self._client._invalidate(  # noqa: SLF001 - its own version, and all others
            self.key(), all_versions=True, hard=hard, bookmarks=bookmarks, replicas=replicas
        )

    def explain(self) -> Explanation:
        """Explain why the value is or is not refreshed now; as `CacheClient.explain`."""
        return self._client.explain(self.query, self.params, version=self.version)

    @property
    def _client(self) -> CacheClient:
        return self.handle._reader()  # noqa: SLF001


class AsyncCachedCall(_HandleCall, Generic[T]):
    """The awaitable counterpart of `CachedCall`, on an async client; made by `AsyncCachedQuery.of`."""

    handle: AsyncCachedQuery[..., T]

    @overload
    async def get(self, **options: Unpack[QueryOptions]) -> T: ...
    @overload
    async def get(self, *, default: D, **options: Unpack[QueryOptions]) -> T | D: ...
    async def get(self, **options: Any) -> Any:
        """Return the value, with options that override the handle's own; as `CachedCall.get`."""
        return await self._client.get(self.query, self.params, **self._options(options))

    async def get_entry(self, **options: Unpack[QueryOptions]) -> Entry[T]:
        """Return the value with all that the cache knows about it; as `CachedCall.get_entry`."""
        entry: Entry[T] = await self._client.get_entry(self.query, self.params, **self._options(options))
        return entry

    async def refresh(self, *, wait: bool = False, timeout: Duration | None = None) -> RefreshState:
        """Claim and publish a refresh now; as `CachedCall.refresh`."""
        timeout = self._timeout(timeout)
        return await self._client.refresh(self.query, self.params, version=self.version, wait=wait, timeout=timeout)

    async def invalidate(
        self, *, hard: bool = False, bookmarks: Collection[str] = (), replicas: int = 0
    ) -> Invalidation:
        """Make the value stale, or drop it, in every version; as `CachedCall.invalidate`."""
        return await self._client._invalidate(  # noqa: SLF001 - its own version, and all others
            self.key(), all_versions=True, hard=hard, bookmarks=bookmarks, replicas=replicas
        )

    async def explain(self) -> Explanation:
        """Explain why the value is or is not refreshed now; as `CachedCall.explain`."""
        return await self._client.explain(self.query, self.params, version=self.version)

    @property
    def _client(self) -> AsyncCacheClient:
        return self.handle._reader()  # noqa: SLF001


@dataclass(frozen=True, slots=True, init=False, repr=False)
class AsyncCachedQuery(_QueryDescriptor[P, T]):
    """A query on an async client, with the methods of `CachedQuery`, awaited; made by `CachedQuery.aio` and `.on`."""

    _client: AsyncCacheClient | None

    async def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the value for these params; as `CachedQuery.__call__`."""
        params = self._params(args, kwargs)
        value: T = await self._reader().get(self.name, params, type=self.returns, **self._options)
        return value

    def of(self, /, *args: P.args, **kwargs: P.kwargs) -> AsyncCachedCall[T]:
        """Return this query with these params, for everything but a plain read; as `CachedQuery.of`."""
        return AsyncCachedCall._made(self, args, kwargs)  # noqa: SLF001 - this module's own class

    async def many(
        self, calls: Iterable[AsyncCachedCall[T]], **options: Unpack[QueryOptions]
    ) -> list[Entry[T] | CacheError]:
        """Read the values for many params at once; as `CachedQuery.many`."""
        items, shared = self._batch(calls, options)
        return await self._reader().get_many(items, **shared)

    def _reader(self) -> AsyncCacheClient:
        return self._client if self._client is not None else default_async_client()


@dataclass(frozen=True, slots=True, init=False, repr=False)
class CachedQuery(_QueryDescriptor[P, T]):
    """A query with the type of its value. Immutable and hashable; made at import, without client or network.

    A call takes only the query's params, so none can clash with an option: `timeout` in ``friends_of(timeout=3)`` is a
    param. `of` takes params in the same way; its result has a method for each operation on the value, and those take
    the options: ``friends_of.of(person_id=42).get(timeout=3)``.

    Type checkers that know TypeForm (mypy ≥ 2.2, basedpyright) infer a call's type from any ``returns``, even unions.
    Params are checked if `cached_query` declares them.

    All calls go through the process's default client, looked up each time, unless `on` has bound the handle to a
    client. The errors are those of the client's methods with the same names.

    Args:
        name: the name under which a worker has registered the query.
        returns: the type of the value: a dataclass, msgspec.Struct, TypedDict, ``list[Friend]``, ``Friend | None`` …
        version: the schema version that ``returns`` describes.
        max_age: for all reads, the largest age of a value since its load began. Default: any age within the grace.
        timeout: for all reads, the longest wait, if one is needed. Default: STAMPEDE_WAIT_TIMEOUT_MS.

    Raises:
        InvalidQuery: the name, version, type or an option is wrong; raised at import, before the first read.
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
        _fill(self, _client=None)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the value for these params, at once while there is one within its grace; as `CacheClient.get`."""
        client = self._client if self._client is not None else default_client()
        params = self._params(args, kwargs)
        value: T
        if self._options:
            value = client.get(self.name, params, type=self.returns, **self._options)
        else:  # worth a branch, since a hit of the in-process tier takes little longer than an empty **
            value = client.get(self.name, params, type=self.returns)
        return value

    def of(self, /, *args: P.args, **kwargs: P.kwargs) -> CachedCall[T]:
        """Return this query with these params, for everything but a plain read.

        Raises:
            InvalidQuery: the params are not the declared ones.
        """
        return CachedCall._made(self, args, kwargs)  # noqa: SLF001 - this module's own class

    def many(self, calls: Iterable[CachedCall[T]], **options: Unpack[QueryOptions]) -> list[Entry[T] | CacheError]:
        """Read the values for many params in one round trip; as `CacheClient.get_many`, an entry or error for each.

        Args:
            calls: calls made by `of`.
        """
        items, shared = self._batch(calls, options)
        return self._reader().get_many(items, **shared)

    @property
    def aio(self) -> AsyncCachedQuery[P, T]:
        """The same query, awaited, on the process's default async client: ``await friends_of.aio(person_id=42)``.

        Raises:
            InvalidQuery: this handle is bound to a sync client.
        """
        if self._client is not None:
            raise InvalidQuery(f"{self.name!r} is bound to a sync client; bind it to an async one", query=self.name)
        return self._changed(object.__new__(AsyncCachedQuery), _client=None)

    @overload
    def on(self, client: CacheClient) -> CachedQuery[P, T]: ...
    @overload
    def on(self, client: AsyncCacheClient) -> AsyncCachedQuery[P, T]: ...
    def on(self, client: CacheClient | AsyncCacheClient) -> CachedQuery[P, T] | AsyncCachedQuery[P, T]:
        """Return the same query bound to ``client`` in place of the default one; awaited if that is async."""
        if isinstance(client, AsyncCacheClient):
            return self._changed(object.__new__(AsyncCachedQuery), _client=client)
        return self._changed(object.__new__(CachedQuery), _client=client)

    def _reader(self) -> CacheClient:
        return self._client if self._client is not None else default_client()


def cached_query(
    name: str, *, version: int = 1, max_age: Duration | None = None, timeout: Duration | None = None
) -> Callable[[Callable[P, T]], CachedQuery[P, T]]:
    """Make a `CachedQuery` from a function's signature: its params and return type. The body is never run.

    Params may then be given by position. A default is sent like any other value, so that one value has one key.

    Args:
        name, version, max_age, timeout: as for `CachedQuery`.

    Raises:
        InvalidQuery: as for `CachedQuery`; or the decorator is used without parentheses; or the signature has no return
            type, an unresolvable name, or a parameter that can't be named (``*args``, ``**kwargs``, positional-only).
    """
    if callable(name):  # @cached_query without parentheses would lose the function, and its first call would fail
        shown = getattr(name, "__name__", "friends_of")
        raise InvalidQuery(f"cached_query takes the query's name: write @cached_query({shown!r})")

    def declare(function: Callable[P, T]) -> CachedQuery[P, T]:
        hints = _hints(name, function)
        signature = _Signature.of(name, function, hints)
        declared: CachedQuery[..., T] = CachedQuery(
            name, returns=hints["return"], version=version, max_age=max_age, timeout=timeout
        )
        _fill(declared, _signature=signature)
        return cast("CachedQuery[P, T]", declared)

    return declare
