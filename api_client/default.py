"""The default clients of a process: reads, invalidations of tags, configuration."""

from __future__ import annotations

import atexit
import os
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from api_client.aio import AsyncCacheClient
from api_client.client import CacheClient
from api_client.config.settings import ReaderSettings
from api_client.config.spelling import names_keywords
from api_client.errors import ConfigurationError
from api_client.observe.events import ReaderEvents
from api_client.protocol.model import TagInvalidation
from api_client.protocol.params import Params
from api_client.read.requirements import ReadOptions
from api_client.threads import Mutex

if TYPE_CHECKING:
    # Type checkers know it without an installation; nothing of it is needed at run time.
    from typing_extensions import TypeForm

T = TypeVar("T")
D = TypeVar("D")

_lock = Mutex()
_client: CacheClient | None = None
_async_client: AsyncCacheClient | None = None
_settings: ReaderSettings | None = None
_events: ReaderEvents | None = None


@names_keywords(ReaderSettings)
def configure(settings: ReaderSettings | None = None, *, events: ReaderEvents | None = None) -> None:
    """Configure the process's default clients, sync and async, before the first read. The last call counts.

    Args:
        settings: default: from the environment, at the first read.
        events: metrics hooks; default: only those that the settings enable.

    Raises:
        ConfigurationError: ``settings`` has the wrong type, or a default client has already been made.
    """
    global _settings, _events
    if settings is not None:
        ReaderSettings.given_or_from_env(settings)
    with _lock:
        if _client is not None or _async_client is not None:
            allowed = "call it before the first read by get_cached, aget_cached or a handle"
            raise ConfigurationError("configure()", "after the first read", allowed)
        _settings, _events = settings, events


def default_client() -> CacheClient:
    """Return the process's default client, made at the first call from `configure` or the environment.

    Raises:
        ConfigurationError: a variable is wrong.
    """
    global _client  # noqa: PLW0603 - one client per process is the point
    if _client is None:
        with _lock:
            if _client is None:
                _client = CacheClient(_settings, events=_events)
                atexit.register(_client.close)
    return _client


def default_async_client() -> AsyncCacheClient:
    """Return the process's default async client, made like the sync one; any event loop may use it.

    Raises:
        ConfigurationError: a variable is wrong.
    """
    global _async_client  # noqa: PLW0603 - as above
    if _async_client is None:
        with _lock:
            if _async_client is None:
                _async_client = AsyncCacheClient(_settings, events=_events)
                atexit.register(_async_client.close_threads)
    return _async_client


def _after_fork_in_child() -> None:
    # Another thread of the parent may have held the lock at the fork.
    global _lock  # noqa: PLW0603
    _lock = Mutex()


os.register_at_fork(after_in_child=_after_fork_in_child)


def use_as_default(client: CacheClient | None) -> CacheClient | None:
    """Make `get_cached` use this client (None: a new one); return the previous one."""
    global _client
    with _lock:
        before, _client = _client, client
    return before


def use_as_async_default(client: AsyncCacheClient | None) -> AsyncCacheClient | None:
    """Make `aget_cached` use this client (None: a new one); return the previous one."""
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
    """Return the value of a query, through the process's default client.

    A value within its grace is returned at once, stale or not; a due refresh is triggered in the background. Options
    and errors are those of `CacheClient.get`.
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
    """Return the value of a query, as `get_cached` does, without blocking the event loop."""
    return await default_async_client().get(query, params, **options)


def invalidate_tags(
    tags: Collection[str], *, hard: bool = False, bookmarks: Collection[str] = (), wait: bool = True
) -> TagInvalidation:
    """Make every value that depends on one of the tags stale, or drop it, through the process's default client.

    Options and errors are those of `CacheClient.invalidate_tags`.
    """
    return default_client().invalidate_tags(tags, hard=hard, bookmarks=bookmarks, wait=wait)


async def ainvalidate_tags(
    tags: Collection[str], *, hard: bool = False, bookmarks: Collection[str] = (), wait: bool = True
) -> TagInvalidation:
    """Make every value that depends on one of the tags stale, or drop it, without blocking the event loop."""
    return await default_async_client().invalidate_tags(tags, hard=hard, bookmarks=bookmarks, wait=wait)
