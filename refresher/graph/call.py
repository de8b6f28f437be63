"""The call of a query's loader, in any transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from refresher.errors import LoadFailed
from refresher.graph.driver_types import Result
from refresher.graph.values import rows_of
from refresher.queries import PREVIOUS, Query
from refresher.results import Previous
from refresher.results import Result as OwnTerms


def call_loader(
    query: Query, tx: Any, calls: Sequence[Mapping[str, Any]], previous: Sequence[Previous | None], max_bytes: int
) -> list[Any]:
    """Call a query's loader; return the value or `refresher.Result` of each call, with yielded rows as a list.

    Args:
        query: the query; without ``batch`` its loader takes one call at a time.
        tx: the loader's first argument.
        calls: the params of each call.
        previous: the previous value's data for each call, for a conditional loader.
        max_bytes: the largest size of a payload.

    Raises:
        LoadFailed: the loader yields more than fits in a payload, or not one value for each call.
    """
    if query.batch is None:
        returned: list[Any] = [
            query.loader(tx, **params, **({PREVIOUS: before} if query.conditional else {}))
            for params, before in zip(calls, previous, strict=True)
        ]
    else:
        more = {PREVIOUS: list(previous)} if query.conditional else {}
        returned = _one_for_each(query, query.loader(tx, [dict(params) for params in calls], **more), len(calls))
    return [_value(query, value, max_bytes) for value in returned]


def _one_for_each(query: Query, returned: object, count: int) -> list[Any]:
    if isinstance(returned, str | bytes | bytearray | Mapping | Result) or not isinstance(returned, Iterable):
        raise _wrong_batch(query, f"returned {type(returned).__name__}", count)
    values = list(islice(returned, count + 1))  # a generator may have no end
    if len(values) != count:
        more = "more than " if len(values) > count else ""
        raise _wrong_batch(query, f"returned {more}{min(len(values), count)} values", count)
    return values


def _wrong_batch(query: Query, what: str, count: int) -> LoadFailed:
    message = f"the batch loader of {query.name!r} {what} for a list of {count}: return one value each, in their order"
    return LoadFailed("wrong_batch", message, is_transient=False)


def _value(query: Query, value: Any, max_bytes: int) -> Any:
    if isinstance(value, OwnTerms):
        return replace(value, value=_value(query, value.value, max_bytes))
    rows = (record.data() for record in value) if isinstance(value, Result) else value
    return rows_of(rows, query=query.name, max_bytes=max_bytes) if isinstance(rows, Iterator) else rows
