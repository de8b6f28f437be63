"""HTTP response headers of a cached value, for any web framework.

::

    entry = client.get_entry("friends_of", {"person_id": 42})
    if is_not_modified(entry, request.headers.get("If-None-Match")):
        return Response(status_code=304, headers=cache_headers(entry))
    return JSONResponse(entry.value, headers=cache_headers(entry, stale_while_revalidate="1m"))
"""

from __future__ import annotations

import math
from typing import Any

from api_client.config.durations import Duration, seconds
from api_client.protocol.model import Entry


def cache_headers(entry: Entry[Any], *, stale_while_revalidate: Duration = 0, public: bool = False) -> dict[str, str]:
    """Return ``Age``, ``Cache-Control`` and ``ETag`` (RFC 9111, RFC 5861) for a response made from one entry.

    Both ages count from the start of the load, so a browser or proxy considers the value fresh for as long as the cache
    does, and not at all once it is stale or invalidated.

    Args:
        stale_while_revalidate: the time after that during which the value may be served while it is revalidated; sent
            in whole seconds.
        public: True to let shared proxies keep the response too.

    Raises:
        ValueError: ``stale_while_revalidate`` is not a duration.
    """
    stale_seconds = math.floor(seconds(stale_while_revalidate))
    max_age_seconds = math.floor(max(0.0, entry.age + entry.ttl_remaining))
    directives = ["public" if public else "private", f"max-age={max_age_seconds}"]
    if stale_seconds:
        directives.append(f"stale-while-revalidate={stale_seconds}")
    # Rounded up, so that the response never seems fresher than the value is.
    return {"Age": str(math.ceil(entry.age)), "Cache-Control": ", ".join(directives), "ETag": _etag(entry)}


def is_not_modified(entry: Entry[Any], if_none_match: str | None) -> bool:
    """Return whether the client already has this value, so that its GET or HEAD is answered with 304.

    Args:
        if_none_match: the request's If-None-Match header, or None.
    """
    if if_none_match is None:
        return False
    given = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
    return "*" in given or _etag(entry).removeprefix("W/") in given


def _etag(entry: Entry[Any]) -> str:
    # Each refresh of a key has its own fencing token. Weak, since the same value may be sent in different bytes.
    return f'W/"{entry.token:x}"'
