"""Many reads at once: one round trip for what is there, one batch for what is to be refreshed. No I/O in here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from api_client.errors import CacheError, CacheUnavailable, InvalidQuery, twin
from api_client.local.tier import Fill
from api_client.protocol.keys import CacheKey, make_key
from api_client.protocol.model import Answer, Entry, RefreshState
from api_client.protocol.params import Params
from api_client.protocol.payload import check_type
from api_client.read.core import ReadCore
from api_client.read.evaluate import Freshness
from api_client.read.pending import PendingRead
from api_client.trigger.publisher import Trigger

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
    """One key of a batch: who wants it, and the miss that it has become."""

    key: CacheKey
    floor: Freshness
    wanted: list[tuple[int, Any]]
    """Places in the batch, and the type of each."""
    fill: Fill | None = None
    miss: PendingRead | None = None


class Batch:
    """The items of one call, and what is known of each so far; `results` in their order at the end.

    Args:
        calls: what to read; an item that can't be is answered by its InvalidQuery.
        parse_freshness: what an item of a version has to be.
        version: of all of them; a QueryCall has a version of its own.
        timeout_seconds: for those that have to wait.

    Raises:
        InvalidQuery: more than 10,000 items.
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
        self._results: list[Answer | CacheError | None] = []
        self._keys: dict[str, _Key] = {}
        for place, call in enumerate(calls):
            if place >= MAX_BATCH:
                raise InvalidQuery(f"more than {MAX_BATCH} items in a batch, which is the most allowed")
            self._results.append(None)
            try:
                query, params, its_version, type_ = _checked(call, version)
                key = make_key(namespace, query, params, its_version)
                if type_ is not Any:
                    check_type(type_, "the type", query)
            except InvalidQuery as error:
                self._results[place] = error
            else:
                self._keys.setdefault(key.entry, _Key(key, parse_freshness(key.version), [])).wanted.append(
                    (place, type_)
                )

    @property
    def results(self) -> list[Entry[Any] | CacheError]:
        """An entry or an error for each item, in their order."""
        return [
            result if isinstance(result, CacheError) else Entry.of(*result)
            for result in self._results
            if result is not None
        ]

    def serve_local(self) -> None:
        """Answer what the in-process tier has."""
        if self._core.tier is None:
            return
        for entry_key, asked in list(self._keys.items()):
            for place, type_ in asked.wanted:
                self._results[place] = self._or_error(asked.key, self._core.serve_local, asked.key, asked.floor, type_)
            if all(self._results[place] is not None for place, _ in asked.wanted):
                del self._keys[entry_key]

    def begin(self) -> list[CacheKey]:
        """Return the keys to read, each once; the tier is told."""
        for asked in self._keys.values():
            asked.fill = self._core.begin(asked.key)
        return [asked.key for asked in self._keys.values()]

    def abandon(self) -> None:
        """Tell the tier that the read has failed."""
        for asked in self._keys.values():
            self._core.abandon(asked.fill)

    def fail(self, error: CacheUnavailable) -> None:
        """Answer all that is left by the error of Redis."""
        for asked in self._keys.values():
            self._fail(asked, error)
        self._keys.clear()

    def _fail(self, asked: _Key, error: CacheUnavailable) -> None:
        for place, _ in asked.wanted:
            self._results[place] = error.about(asked.key.query)
        self._core.record_failure(asked.key, error)

    def serve(self, found: Sequence[bytes | CacheUnavailable | None]) -> list[PendingRead]:
        """Answer from the entries' bytes, in the order of `begin`; return what has to be waited for.

        Of a cluster one node may fail alone: an error is in the place of its keys.

        What they trigger is handed over together.
        """
        together: list[Trigger] = []
        triggering: list[int] = []
        for asked, raw in zip(self._keys.values(), found, strict=True):
            if isinstance(raw, CacheUnavailable):
                self._core.abandon(asked.fill)
                self._fail(asked, raw)
                continue
            for place, type_ in asked.wanted:
                answer = self._or_error(
                    asked.key, self._core.serve, asked.key, raw, asked.floor, type_, asked.fill, together
                )
                asked.fill = None
                if isinstance(answer, int):
                    asked.miss = PendingRead(self._core, asked.key, asked.floor, answer, self._timeout_seconds)
                    break
                self._results[place] = answer
                if len(together) > len(triggering):
                    triggering.append(place)
        for place, accepted in zip(triggering, self._core.submit(together), strict=True):
            if not accepted:
                self._mark_dropped(place)
        return [asked.miss for asked in self._keys.values() if asked.miss is not None]

    def end(self, waited: Sequence[bytes | CacheError]) -> None:
        """Answer from what the waits have brought, in the order of `serve`."""
        missed = [asked for asked in self._keys.values() if asked.miss is not None]
        for asked, raw in zip(missed, waited, strict=True):
            if isinstance(raw, CacheError):
                self._core.record_failure(asked.key, raw)
            for place, type_ in asked.wanted:
                if isinstance(raw, CacheError):
                    self._results[place] = twin(raw)  # each may be raised
                elif asked.miss is not None:
                    self._results[place] = self._or_error(asked.key, asked.miss.answer, raw, type_)

    def _or_error(self, key: CacheKey, serve: Callable[..., A], *args: Any) -> A | CacheError:
        try:
            return serve(*args)
        except CacheError as error:
            self._core.record_failure(key, error)
            return error

    def _mark_dropped(self, place: int) -> None:
        result = self._results[place]
        if isinstance(result, tuple):
            value, header, state, _, now_us = result
            self._results[place] = value, header, state, RefreshState.DROPPED, now_us


def _checked(call: object, version: int) -> QueryCall:
    if isinstance(call, QueryCall):
        return call
    if isinstance(call, tuple) and len(call) == len(("query", "params")):
        query, params = call
        return QueryCall(query, params, version)
    raise InvalidQuery(f"{call!r:.100} in a batch: allowed are a pair of query and params, and a QueryCall")
