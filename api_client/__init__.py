"""The reader of a background-refresh cache, for import in an application.

Nothing here imports a worker, a loader or the graph's driver.

```python
from api_client import get_cached

friends = get_cached("friends_of", {"person_id": 42})
```
"""

from __future__ import annotations

from api_client._version import __version__
from api_client.aio import AsyncCacheClient
from api_client.client import CacheClient
from api_client.config.settings import ReaderSettings
from api_client.default import (
    aget_cached,
    ainvalidate_tags,
    configure,
    default_async_client,
    default_client,
    get_cached,
    invalidate_tags,
)
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
from api_client.explain import Explanation
from api_client.observe.events import ReaderEvents, ReadFailure
from api_client.protocol.messages import RefreshReason
from api_client.protocol.model import Entry, EntryState, Invalidation, RefreshState, TagInvalidation
from api_client.queries import AsyncCachedCall, AsyncCachedQuery, CachedCall, CachedQuery, cached_query
from api_client.read.batch import QueryCall

__all__ = [
    "AsyncCacheClient",
    "AsyncCachedCall",
    "AsyncCachedQuery",
    "CacheClient",
    "CacheError",
    "CacheUnavailable",
    "CachedCall",
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
    "TagInvalidation",
    "TriggerFailed",
    "UnknownQuery",
    "WaitTimeout",
    "__version__",
    "aget_cached",
    "ainvalidate_tags",
    "cached_query",
    "configure",
    "default_async_client",
    "default_client",
    "get_cached",
    "invalidate_tags",
]
