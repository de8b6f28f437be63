"""Batches of reads: one round trip for the entries in Redis, one submission for all refreshes. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from msgspec.structs import replace

from api_client.errors import CacheError, CacheUnavailable, InvalidQuery, RefreshFailed, twin
from api_client.local.tier import Fill
from api_client.protocol.keys import CacheKey, make_key
from api_client.protocol.model import Entry, ReadResult, RefreshState
from api_client.protocol.params import Params
from api_client.protocol.payload import check_type
from api_client.read.core import MustWait, ReadCore
from api_client.read.evaluate import Freshness
from api_client.read.pending import PendingRead
from api_client.trigger.backlog import Trigger

A = TypeVar("A")

MAX_BATCH: Final = 10_000


class QueryCall(NamedTuple):
    """One item of a batch, which may also be a plain pair of query and params.

    ``version`` and ``type`` are as for `CacheClient.get`. A plain pair has the version of the batch's options.
    """

    query: str
    params: Params | None = None
    version: int = 1
    type: Any = Any


AnyCall: TypeAlias = QueryCall | tuple[str, Params | None]


@dataclass(slots=True)
class _Key:
    """One key of a batch, with the positions and types of its items."""

    key: CacheKey
    freshness: Freshness
    items: list[tuple[int, Any]]
    fill: Fill | None = None
    pending: PendingRead | None = None


class Batch:
    """The items of one call and their results so far; `results` returns these in the items' order.

    Args:
        calls: the items; the result of an invalid one is its InvalidQuery.
        parse_freshness: returns the requirements of an item of the given version.
        version: the version of plain pairs; a QueryCall has its own.
        timeout_seconds: the timeout of the waits.

    Raises:
        InvalidQuery: there are more than 10,000 items, or ``calls`` is not iterable.
    """

    def __init__(
        self,
        core: ReadCore,
        namespace: str,
        calls: Iterable[AnyCall],
        parse_freshness: Callable[[int], Freshness],
        timeout_seconds: float,
        version: int = 1,
    ) -> None:
        self._core, self._timeout_seconds = core, timeout_seconds
        self._results: list[ReadResult | CacheError | None] = []
        self._keys: dict[str, _Key] = {}
        for place, call in numbered(calls, "get_many"):
            self._results.append(None)
            try:
                query, params, its_version, type_ = parse_call(call, version)
                key = make_key(namespace, query, params, its_version)
                if type_ is not Any:
                    check_type(type_, "the type", query)
            except InvalidQuery as error:
                self._results[place] = error
            else:
                one = self._keys.setdefault(key.entry, _Key(key, parse_freshness(key.version), []))
                one.items.append((place, type_))

    @property
    def results(self) -> list[Entry[Any] | CacheError]:
        """An entry or an error for each item, in order."""
        return [
            result if isinstance(result, CacheError) else Entry.of(result)
            for result in self._results
            if result is not None
        ]

    def serve_local(self) -> None:
        """Serve the keys that the in-process tier holds."""
        if self._core.tier is None:
            return
        for entry_key, one in list(self._keys.items()):
            for place, type_ in one.items:
                self._results[place] = self._or_error(one.key, self._core.serve_local, one.key, one.freshness, type_)
            if all(self._results[place] is not None for place, _ in one.items):
                del self._keys[entry_key]

    @contextmanager
    def reading(self) -> Iterator[list[CacheKey]]:
        """Begin the fills of the tier, and yield the keys to read, each once.

        If Redis is unavailable in the body, all remaining items get that error as their result.
        """
        try:
            for one in self._keys.values():
                one.fill = self._core.begin_fill(one.key)
            yield [one.key for one in self._keys.values()]
        except BaseException as error:
            for one in self._keys.values():
                self._core.abandon(one.fill)
            if not isinstance(error, CacheUnavailable):
                raise
            for one in self._keys.values():
                self._fail(one, error.about(one.key.query))
            self._keys.clear()

    def _fail(self, one: _Key, error: CacheError) -> None:
        for place, _ in one.items:
            self._results[place] = twin(error)  # each item raises an exception of its own
        self._core.record_failure(one.key, error)

    def serve(self, found: Sequence[bytes | CacheUnavailable | None]) -> list[PendingRead]:
        """Serve from the entries' bytes, given in the order of `reading`; return the reads that have to wait.

        One node of a cluster may fail alone; its keys then have an error in place of bytes. Triggers are submitted
        together.
        """
        triggers: list[Trigger] = []
        triggering: list[int] = []
        for one, raw in zip(self._keys.values(), found, strict=True):
            if isinstance(raw, CacheUnavailable):
                self._core.abandon(one.fill)
                self._fail(one, raw.about(one.key.query))
                continue
            for place, type_ in one.items:
                result = self._or_error(
                    one.key, self._core.serve, one.key, raw, one.freshness, type_, one.fill, triggers
                )
                one.fill = None
                if isinstance(result, MustWait):
                    try:
                        one.pending = PendingRead(
                            self._core, one.key, one.freshness, result.seen_token, self._timeout_seconds
                        )
                    except RefreshFailed as error:
                        self._fail(one, error)
                    break
                self._results[place] = result
                if len(triggers) > len(triggering):
                    triggering.append(place)
        for place, accepted in zip(triggering, self._core.submit(triggers), strict=True):
            if not accepted:
                self._mark_dropped(place)
        return [one.pending for one in self._keys.values() if one.pending is not None]

    def end(self, waited: Sequence[bytes | CacheError]) -> None:
        """Take the results of the waits, in the order of `serve`."""
        waiting = [(one, one.pending) for one in self._keys.values() if one.pending is not None]
        for (one, pending), raw in zip(waiting, waited, strict=True):
            if isinstance(raw, CacheError):
                self._fail(one, raw)
                continue
            for place, type_ in one.items:
                self._results[place] = self._or_error(one.key, pending.result, raw, type_)

    def _or_error(self, key: CacheKey, serve: Callable[..., A], *args: Any) -> A | CacheError:
        try:
            return serve(*args)
        except CacheError as error:
            self._core.record_failure(key, error)
            return error

    def _mark_dropped(self, place: int) -> None:
        result = self._results[place]
        if isinstance(result, ReadResult):
            self._results[place] = replace(result, refresh=RefreshState.DROPPED)


def numbered(calls: Iterable[AnyCall], about: str) -> Iterator[tuple[int, AnyCall]]:
    """Yield the items of a batch with their positions.

    Raises:
        InvalidQuery: there are more than 10,000, or ``calls`` is not iterable.
    """
    if not isinstance(calls, Iterable):
        raise InvalidQuery(f"{about}({calls!r:.100}): expected pairs of query and params, in a list for example")
    for place, call in enumerate(calls):
        if place == MAX_BATCH:
            raise InvalidQuery(f"more than {MAX_BATCH} items in a batch, which is the most allowed")
        yield place, call


def parse_call(call: object, version: int) -> QueryCall:
    """Return an item of a batch as a QueryCall; a plain pair gets ``version``.

    Raises:
        InvalidQuery: the item is neither a pair nor a QueryCall.
    """
    if isinstance(call, QueryCall):
        return call
    if isinstance(call, tuple) and len(call) == len(("query", "params")):
        query, params = call
        return QueryCall(query, params, version)
    raise InvalidQuery(f"{call!r:.100} in a batch: expected a pair of query and params, or a QueryCall")
