"""Batches of reads: one round trip for what is there, one submission of what is to be refreshed. No I/O."""

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
    """One item of a batch; a plain pair of query and params is one as well.

    ``version`` and ``type`` are those of `CacheClient.get`; of a plain pair the version is that of the batch's options.
    """

    query: str
    params: Params | None = None
    version: int = 1
    type: Any = Any


AnyCall: TypeAlias = QueryCall | tuple[str, Params | None]


@dataclass(slots=True)
class _Key:
    """One key of a batch, with the places of its items in the batch, and the type of each."""

    key: CacheKey
    freshness: Freshness
    items: list[tuple[int, Any]]
    fill: Fill | None = None
    pending: PendingRead | None = None


class Batch:
    """The items of one call, and the result of each so far; `results` in their order at the end.

    Args:
        calls: what to read; the result of one that can't be read is its InvalidQuery.
        parse_freshness: returns what an item of a version requires.
        version: of all of them; a QueryCall has a version of its own.
        timeout_seconds: of the waits.

    Raises:
        InvalidQuery: more than 10,000 items, or nothing that has items.
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
        """An entry or an error for each item, in their order."""
        return [
            result if isinstance(result, CacheError) else Entry.of(result)
            for result in self._results
            if result is not None
        ]

    def serve_local(self) -> None:
        """Serve what the in-process tier has."""
        if self._core.tier is None:
            return
        for entry_key, one in list(self._keys.items()):
            for place, type_ in one.items:
                self._results[place] = self._or_error(one.key, self._core.serve_local, one.key, one.freshness, type_)
            if all(self._results[place] is not None for place, _ in one.items):
                del self._keys[entry_key]

    @contextmanager
    def reading(self) -> Iterator[list[CacheKey]]:
        """Begin the fills of the tier, and return the keys to read, each once.

        Where Redis is unavailable within, that is the result of all that is left.
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
            self._results[place] = twin(error)  # each may be raised
        self._core.record_failure(one.key, error)

    def serve(self, found: Sequence[bytes | CacheUnavailable | None]) -> list[PendingRead]:
        """Serve from the entries' bytes, in the order of `reading`; return the reads that have to wait.

        Of a cluster one node may fail alone: an error is in the place of its keys. What they trigger is submitted
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
        """Take what the waits have returned, in the order of `serve`."""
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
    """Yield the items of a batch with their places.

    Raises:
        InvalidQuery: there are more than 10,000, or ``calls`` is nothing that has items.
    """
    if not isinstance(calls, Iterable):
        raise InvalidQuery(f"{about}({calls!r:.100}): expected pairs of query and params, in a list for example")
    for place, call in enumerate(calls):
        if place == MAX_BATCH:
            raise InvalidQuery(f"more than {MAX_BATCH} items in a batch, which is the most allowed")
        yield place, call


def parse_call(call: object, version: int) -> QueryCall:
    """Return an item of a batch; a pair has ``version``.

    Raises:
        InvalidQuery: it is neither a pair nor a QueryCall.
    """
    if isinstance(call, QueryCall):
        return call
    if isinstance(call, tuple) and len(call) == len(("query", "params")):
        query, params = call
        return QueryCall(query, params, version)
    raise InvalidQuery(f"{call!r:.100} in a batch: expected a pair of query and params, or a QueryCall")
