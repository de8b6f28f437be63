"""The reader of a background-refresh cache: import this in the application.

```python
from api_client import get_cached

friends = get_cached("friends_of", {"person_id": 42})
```
"""

from __future__ import annotations

from api_client._version import __version__
from api_client.aio import AsyncCacheClient
from api_client.aio.handles import AsyncCachedQuery
from api_client.answers import Entry, EntryState, Invalidation, RefreshState
from api_client.batches import QueryCall
from api_client.default_client import aget_cached, configure, get_cached
from api_client.errors import (
    CacheError,
    CacheUnavailable,
    ConfigurationError,
    DecodeError,
    InvalidQuery,
    RefreshFailed,
    TriggerFailed,
    UnknownQuery,
    WaitTimeout,
)
from api_client.events import ReaderEvents, ReadFailure, RefreshReason
from api_client.explain import Explanation
from api_client.handles import CachedQuery, cached_query
from api_client.reader import CacheClient
from api_client.settings import ReaderSettings

__all__ = [
    "AsyncCacheClient",
    "AsyncCachedQuery",
    "CacheClient",
    "CacheError",
    "CacheUnavailable",
    "CachedQuery",
    "ConfigurationError",
    "DecodeError",
    "Entry",
    "EntryState",
    "Explanation",
    "InvalidQuery",
    "Invalidation",
    "QueryCall",
    "ReadFailure",
    "ReaderEvents",
    "ReaderSettings",
    "RefreshFailed",
    "RefreshReason",
    "RefreshState",
    "TriggerFailed",
    "UnknownQuery",
    "WaitTimeout",
    "__version__",
    "aget_cached",
    "cached_query",
    "configure",
    "get_cached",
]
