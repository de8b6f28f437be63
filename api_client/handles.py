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
import inspect
import typing
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypedDict, TypeVar, Unpack, cast, overload

import msgspec

from api_client.answers import Entry, Invalidation
from api_client.default_client import default_client
from api_client.durations import Duration
from api_client.errors import InvalidQuery
from api_client.floors import duration_of
from api_client.keys import CacheKey, Params, make_key
from api_client.read_plan import RefreshState
from api_client.reader import CacheClient

if TYPE_CHECKING:
    # Known to type checkers without being installed; nothing of it is needed at run time.
    from typing_extensions import TypeForm

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
D = TypeVar("D")


class QueryOptions(TypedDict, total=False):
    """The keywords of a read through a handle: those of `CacheClient.get` but ``version`` and ``type``."""

    max_age: Duration | None
    fresh: bool
    min_generation: int
    min_bookmarks: Collection[str]
    timeout: Duration | None


@dataclass(frozen=True, slots=True, init=False, repr=False)
class CachedQuery(Generic[P, T]):
    """A query with the type of its value. Immutable and hashable; made at import, no client and no network needed.

    A call names the query's params and nothing else, so no param can clash with an option: `timeout` in
    ``friends_of(timeout=3)`` is a param. Options for one read go to `get` and `get_entry`, where the params are one
    mapping; those for all reads are given here.

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

    name: str
    returns: Any = field(hash=False)
    version: int
    _options: dict[str, Any] = field(hash=False)
    _signature: _Signature | None
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
        make_key("any", name, None, version)  # checks both
        _check_type(name, returns)
        options: dict[str, Any] = {}
        # Only what differs from the client's own defaults: a read without options takes its shortest way.
        if version != 1:
            options["version"] = version
        if max_age is not None:
            options["max_age"] = duration_of(name, "max_age", max_age)
        if timeout is not None:
            options["timeout"] = duration_of(name, "timeout", timeout)
        _fill(self, name=name, returns=returns, version=version, _options=options, _signature=None, _client=None)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the value for these params: at once while there is one within its grace. As `CacheClient.get`."""
        # Written out, not shared with `get`: a call through the handle costs little more than the client's own.
        client = self._client if self._client is not None else default_client()
        declared = None if self._signature is None else self._signature.names
        right = not args and (declared is None or tuple(kwargs) == declared)
        params = kwargs if right else self._bound(args, kwargs)
        value: T
        if self._options:
            value = client.get(self.name, params, type=self.returns, **self._options)
        else:
            value = client.get(self.name, params, type=self.returns)
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
        """Make the value stale from now on, or gone. As `CacheClient.invalidate`."""
        return self._reader().invalidate(
            self.name, params, version=self.version, hard=hard, bookmarks=bookmarks, replicas=replicas
        )

    def key(self, params: Params | None = None) -> CacheKey:
        """Return what the cache calls this value's entry and lease record. As `CacheClient.key`."""
        return self._reader().key(self.name, params, version=self.version)

    def on(self, client: CacheClient) -> CachedQuery[P, T]:
        """Return the same query, read through ``client`` in place of the process's default one."""
        return self._with(_client=client)

    def __repr__(self) -> str:
        return f"<CachedQuery {self.name!r}, version {self.version}>"

    def _reader(self) -> CacheClient:
        return self._client if self._client is not None else default_client()

    def _merged(self, options: Mapping[str, Any]) -> dict[str, Any]:
        fixed = options.keys() & {"version", "type"}
        if fixed:
            raise InvalidQuery(
                f"{self.name!r}: {min(fixed)} is the handle's own; make another CachedQuery for another one",
                query=self.name,
            )
        return {"type": self.returns, **self._options, **options}

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Mapping[str, Any]:
        if self._signature is None:
            raise InvalidQuery(f"{self.name!r}: params go by name, as in {self.name}(person_id=42)", query=self.name)
        return self._signature.params(self.name, args, kwargs)

    def _with(self, **fields: Any) -> CachedQuery[P, T]:
        changed = copy.copy(self)
        _fill(changed, **fields)
        return changed


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
        signature = _Signature.of(name, function)
        declared: CachedQuery[..., T] = CachedQuery(
            name, returns=_returned(name, function), version=version, max_age=max_age, timeout=timeout
        )
        _fill(declared, _signature=signature)
        return cast("CachedQuery[P, T]", declared)

    return declare


@dataclass(frozen=True, slots=True)
class _Signature:
    """The params that a function declares. ``whole`` words the errors; it is too slow for the calls that are right."""

    names: tuple[str, ...]
    positional: tuple[str, ...]
    defaults: dict[str, Any] = field(hash=False)
    whole: inspect.Signature = field(hash=False)

    @classmethod
    def of(cls, query: str, function: Callable[..., Any]) -> _Signature:
        whole = inspect.signature(function)
        for parameter in whole.parameters.values():
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise InvalidQuery(f"{query!r}: {parameter} is not a param with a name", query=query)
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
            whole=whole,
        )

    def params(self, query: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Mapping[str, Any]:
        """Return the params of a call by their names.

        Raises:
            InvalidQuery: one is missing, unknown or there twice.
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


def _fill(handle: CachedQuery[..., Any], **fields: Any) -> None:
    for name, value in fields.items():
        object.__setattr__(handle, name, value)


def _returned(query: str, function: Callable[..., Any]) -> Any:
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise InvalidQuery(f"{query!r}: its signature can't be resolved: {error}", query=query) from error
    if "return" not in hints:
        raise InvalidQuery(f"{query!r}: its signature does not say what it returns", query=query)
    return hints["return"]


def _check_type(query: str, type_: object) -> None:
    # A name that is defined further down is looked up at the first read.
    with suppress(NameError):
        try:
            msgspec.msgpack.Decoder(type_)
        except TypeError as error:
            raise InvalidQuery(f"returns= of {query!r} is no type to decode into: {error}", query=query) from error
