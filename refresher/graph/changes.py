"""Loads within a query's transaction: first the versions, then the values that have changed, and their degrees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from api_client.protocol import payload
from refresher.errors import LoadFailed
from refresher.flow.ports import RunsQueries
from refresher.graph import values
from refresher.graph.call import call_loader
from refresher.graph.reads import Reads
from refresher.queries import Loaded, Query
from refresher.results import UNCHANGED, Previous

MAX_VERSION_BYTES: Final = 1_024


def load_changed(
    query: Query,
    tx: RunsQueries,
    calls: Sequence[Mapping[str, Any]],
    previous: Sequence[Previous | None],
    max_bytes: int,
    *,
    reads: Reads | None = None,
    following: Callable[[Reads | None], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> list[Loaded]:
    """Return the result of each call, or `UNCHANGED`, without its loader, if ``version_cypher`` says so.

    The version is read first, so that a write between it and the load shows in the next version. ``reads`` follows the
    loader's reads within the block of ``following``; each value of a batch may depend on all of them.

    Raises:
        LoadFailed: the loader's result, a version or the degrees are wrong.
    """
    versions = _versions(tx, query, calls)
    changed = [
        place
        for place, (version, before) in enumerate(zip(versions, previous, strict=True))
        if version is None or before is None or version != before.version
    ]
    loaded = [Loaded(UNCHANGED, version=version) for version in versions]
    if changed:
        calls, previous = [calls[place] for place in changed], [previous[place] for place in changed]
        with following(reads):
            found = call_loader(query, tx, calls, previous, max_bytes)
        tags, is_outdated = (reads.tags, reads.is_outdated) if reads else ((), False)
        for place, value, degree in zip(changed, found, _degrees(tx, query, calls), strict=True):
            loaded[place] = Loaded(value, degree, versions[place], tags, is_outdated)
    return loaded


def _versions(tx: RunsQueries, query: Query, calls: Sequence[Mapping[str, Any]]) -> list[Any]:
    return [
        record and _version(query, record.values())
        for record in _records(tx, query, "version", query.version_cypher, calls)
    ]


def _version(query: Query, columns: list[Any]) -> Any:
    """Return the columns as plain values, for the entry."""
    if all(column is None for column in columns):
        return None
    try:
        packed = values.encode(columns, query=query.name, max_bytes=MAX_VERSION_BYTES)
        return payload.decode(packed.content, Any, query.name)
    except LoadFailed as failure:
        message = f"the version of {query.name!r} can't be kept ({failure}): return at most {MAX_VERSION_BYTES} bytes"
        raise LoadFailed("version", message, is_transient=False) from failure


def _degrees(tx: RunsQueries, query: Query, calls: Sequence[Mapping[str, Any]]) -> list[int]:
    return [_number(record and record.value()) for record in _records(tx, query, "degree", query.degree_cypher, calls)]


def _number(degree: object) -> int:
    return max(0, int(degree)) if isinstance(degree, int | float) else 0


def _records(
    tx: RunsQueries, query: Query, what: str, cypher: str | None, calls: Sequence[Mapping[str, Any]]
) -> list[Any]:
    """Run Cypher of the query's author, never of a message; return each call's record, or None without one."""
    if cypher is None:
        return [None] * len(calls)
    if query.batch is None:
        return [tx.run(cypher, dict(params)).single() for params in calls]
    records = list(tx.run(cypher, {"calls": [dict(params) for params in calls]}))
    if len(records) != len(calls):
        counts = f"has {len(records)} rows for {len(calls)} calls"
        message = f"the {what} of {query.name!r} {counts}: return one each, in order"
        raise LoadFailed("wrong_batch", message, is_transient=False)
    return records
