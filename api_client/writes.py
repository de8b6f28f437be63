"""The graph's side of a write with invalidations; the graph's driver is not imported here."""

from __future__ import annotations

from collections.abc import Awaitable
from inspect import isawaitable
from typing import Any, Protocol, TypeVar

from api_client.errors import InvalidQuery


class Transaction(Protocol):
    """The part in use of the neo4j driver's transaction."""

    def commit(self) -> None: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


class AsyncTransaction(Protocol):
    """The async counterpart of `Transaction`."""

    def commit(self) -> Awaitable[None]: ...  # noqa: D102
    def close(self) -> Awaitable[None]: ...  # noqa: D102


Tx = TypeVar("Tx", bound=Transaction)
Tx_co = TypeVar("Tx_co", bound=Transaction, covariant=True)
AsyncTx = TypeVar("AsyncTx", bound=AsyncTransaction)
AsyncTx_co = TypeVar("AsyncTx_co", bound=AsyncTransaction, covariant=True)


class Session(Protocol[Tx_co]):
    """The part in use of the neo4j driver's session. Its bookmarks have ``raw_values``."""

    def begin_transaction(self) -> Tx_co: ...  # noqa: D102
    def last_bookmarks(self) -> Any: ...  # noqa: D102


class AsyncSession(Protocol[AsyncTx_co]):
    """The async counterpart of `Session`."""

    def begin_transaction(self) -> Awaitable[AsyncTx_co]: ...  # noqa: D102
    def last_bookmarks(self) -> Awaitable[Any]: ...  # noqa: D102


def begin_transaction(session: object, *, is_async: bool) -> Any:
    """Begin a transaction of a session; for an async session return an awaitable.

    Raises:
        InvalidQuery: it is no session, or one for the other client; no transaction is left open.
    """
    begin = getattr(session, "begin_transaction", None)
    begun = begin() if callable(begin) else None
    if begun is None or isawaitable(begun) is not is_async:
        if begun is not None:
            begun.close()  # the transaction, or the coroutine that would have begun it
        allowed = "an AsyncSession, of the neo4j driver" if is_async else "a Session, of the neo4j driver"
        raise InvalidQuery(f"the session is of type {type(session).__name__}: expected {allowed}")
    return begun
