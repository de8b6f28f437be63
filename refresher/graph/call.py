"""The call of a query's loader, in whatever transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from refresher.errors import LoadFailed
from refresher.graph.driver_types import Result
from refresher.graph.values import rows_of
from refresher.queries import Query


def call_loader(query: Query, tx: Any, params: Mapping[str, Any], max_bytes: int) -> Any:
    """Call a query's loader and return its value; the rows that it yields, as a list.

    Raises:
        LoadFailed: it returned a Result, or yields more than a payload may hold.
    """
    value = query.loader(tx, **params)
    if isinstance(value, Result):
        # It would be empty once the transaction has ended.
        raise LoadFailed(
            "not_encodable", f"the loader of {query.name!r} returned a Result: consume it, and return its data",
            is_transient=False,
        )  # fmt: skip
    return rows_of(value, query=query.name, max_bytes=max_bytes) if isinstance(value, Iterator) else value
