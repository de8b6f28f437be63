"""What the sync and the async handle of a query share: its description, and how a call of it becomes the client's."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, TypedDict, TypeVar

from api_client.answers import MinGeneration
from api_client.batches import QueryCall
from api_client.durations import Duration
from api_client.errors import InvalidQuery
from api_client.floors import duration_of
from api_client.keys import check_query_name, check_version
from api_client.params import Params
from api_client.payload import check_type
from api_client.signatures import Signature

P = ParamSpec("P")
T = TypeVar("T")


class QueryOptions(TypedDict, total=False):
    """The keywords of a read through a handle: those of `CacheClient.get` but ``version`` and ``type``."""

    max_age: Duration | None
    fresh: bool
    min_generation: MinGeneration
    min_bookmarks: Collection[str]
    timeout: Duration | None


@dataclass(frozen=True, slots=True, init=False, repr=False)
class DescribedQuery(Generic[P, T]):
    """A query's name, version, type and options, and, where they were declared, its params. Immutable."""

    name: str
    returns: Any = field(hash=False)
    version: int
    _options: dict[str, Any] = field(hash=False)
    _signature: Signature | None

    def of(self, /, *args: P.args, **kwargs: P.kwargs) -> QueryCall:
        """Return this query with these params, as an item for a client's `get_many`, which mixes queries."""
        return QueryCall(self.name, self._params(args, kwargs), self.version, self.returns)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}, version {self.version}>"

    def _describe(
        self, name: str, returns: object, version: int, max_age: Duration | None, timeout: Duration | None
    ) -> None:
        name = check_query_name(name)
        version = check_version(name, version)
        check_type(returns, "returns=", name)
        options: dict[str, Any] = {}
        # Only what differs from the client's own defaults: a read without options takes its shortest way.
        if version != 1:
            options["version"] = version
        if max_age is not None:
            options["max_age"] = duration_of(name, "max_age", max_age)
        if timeout is not None:
            options["timeout"] = duration_of(name, "timeout", timeout)
        fill(self, name=name, returns=returns, version=version, _options=options, _signature=None)

    def _params(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Params:
        if self._signature is None:
            if not args:
                return kwargs
            raise InvalidQuery(f"{self.name!r}: params go by name, as in {self.name}(person_id=42)", query=self.name)
        if not args and tuple(kwargs) == self._signature.names:
            return kwargs
        return self._signature.params(self.name, args, kwargs)

    def _merged(self, options: Mapping[str, Any]) -> dict[str, Any]:
        fixed = options.keys() & {"version", "type"}
        if fixed:
            raise InvalidQuery(
                f"{self.name!r}: {min(fixed)} is the handle's own; make another CachedQuery for another one",
                query=self.name,
            )
        return {"type": self.returns, **self._options, **options}

    def _batch(self, many: Iterable[Params | None], options: Mapping[str, Any]) -> tuple[list[QueryCall], Any]:
        """Return the items of a batch, and the options that are for all of them."""
        shared = self._merged(options)
        del shared["type"]
        shared.pop("version", None)
        return [QueryCall(self.name, params, self.version, self.returns) for params in many], shared


def fill(handle: DescribedQuery[..., Any], **fields: Any) -> None:
    """Set fields of a handle that nobody else has seen yet."""
    for name, value in fields.items():
        object.__setattr__(handle, name, value)
