"""The graph's side of a write that is followed by invalidations; its driver is not imported here."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Protocol, TypeVar


class Transaction(Protocol):
    """The used part of a transaction of the neo4j driver."""

    def commit(self) -> None: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


class AsyncTransaction(Protocol):
    """The same of an async one."""

    def commit(self) -> Awaitable[None]: ...  # noqa: D102
    def close(self) -> Awaitable[None]: ...  # noqa: D102


Tx = TypeVar("Tx", bound=Transaction)
Tx_co = TypeVar("Tx_co", bound=Transaction, covariant=True)
AsyncTx = TypeVar("AsyncTx", bound=AsyncTransaction)
AsyncTx_co = TypeVar("AsyncTx_co", bound=AsyncTransaction, covariant=True)


class Session(Protocol[Tx_co]):
    """The used part of a session of the neo4j driver. Its bookmarks have ``raw_values``."""

    def begin_transaction(self) -> Tx_co: ...  # noqa: D102
    def last_bookmarks(self) -> Any: ...  # noqa: D102


class AsyncSession(Protocol[AsyncTx_co]):
    """The same of an async one."""

    def begin_transaction(self) -> Awaitable[AsyncTx_co]: ...  # noqa: D102
    def last_bookmarks(self) -> Awaitable[Any]: ...  # noqa: D102
