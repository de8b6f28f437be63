"""`get_cached` and `aget_cached`: the readers of an application that needs only one."""

from __future__ import annotations

import atexit
import os
import threading
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from api_client.aio import AsyncCacheClient
from api_client.floors import ReadOptions
from api_client.params import Params
from api_client.reader import CacheClient

if TYPE_CHECKING:
    # Known to type checkers without being installed; nothing of it is needed at run time.
    from typing_extensions import TypeForm

T = TypeVar("T")
D = TypeVar("D")

_lock = threading.Lock()
_client: CacheClient | None = None
_async_client: AsyncCacheClient | None = None


def default_client() -> CacheClient:
    """Return the process's own client, made from the environment at the first call.

    Raises:
        ConfigurationError: a variable is wrong.
    """
    global _client  # noqa: PLW0603 - the one client a process is the point
    if _client is None:
        with _lock:
            if _client is None:
                _client = CacheClient.from_env()
                atexit.register(_client.close)
    return _client


def default_async_client() -> AsyncCacheClient:
    """Return the process's own async client, made from the environment at the first call; any event loop may use it.

    Raises:
        ConfigurationError: a variable is wrong.
    """
    global _async_client  # noqa: PLW0603 - as above
    if _async_client is None:
        with _lock:
            if _async_client is None:
                _async_client = AsyncCacheClient.from_env()
                atexit.register(_async_client.close_threads)
    return _async_client


def _after_fork_in_child() -> None:
    # Another thread of the parent may have held it at the fork.
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)


def use_as_default(client: CacheClient | None) -> CacheClient | None:
    """Let `get_cached` use this client (None: make one from the environment again); the one used until now."""
    global _client
    with _lock:
        before, _client = _client, client
    return before


def use_as_async_default(client: AsyncCacheClient | None) -> AsyncCacheClient | None:
    """Let `aget_cached` use this client (None: make one from the environment again); the one used until now."""
    global _async_client
    with _lock:
        before, _async_client = _async_client, client
    return before


@overload
def get_cached(query: str, params: Params | None = None, *, type: TypeForm[T], **options: Unpack[ReadOptions]) -> T: ...
@overload
def get_cached(
    query: str, params: Params | None = None, *, type: TypeForm[T], default: D, **options: Unpack[ReadOptions]
) -> T | D: ...
@overload
def get_cached(
    query: str, params: Params | None = None, *, default: Any = ..., **options: Unpack[ReadOptions]
) -> Any: ...
def get_cached(query: str, params: Params | None = None, **options: Any) -> Any:
    """Return the value of a query, through a client made from the environment at the first call.

    The value within its grace is returned at once, stale or not; a refresh is asked for in the background when it is
    due. Options and errors are those of `CacheClient.get`.
    """
    return default_client().get(query, params, **options)


@overload
async def aget_cached(
    query: str, params: Params | None = None, *, type: TypeForm[T], **options: Unpack[ReadOptions]
) -> T: ...
@overload
async def aget_cached(
    query: str, params: Params | None = None, *, type: TypeForm[T], default: D, **options: Unpack[ReadOptions]
) -> T | D: ...
@overload
async def aget_cached(
    query: str, params: Params | None = None, *, default: Any = ..., **options: Unpack[ReadOptions]
) -> Any: ...
async def aget_cached(query: str, params: Params | None = None, **options: Any) -> Any:
    """Return the value of a query, as `get_cached`, without holding the event loop."""
    return await default_async_client().get(query, params, **options)
