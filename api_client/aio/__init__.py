"""The async reader: the same names and the same core as the sync one, awaited."""

from __future__ import annotations

from api_client.aio.client import AsyncCacheClient

__all__ = ["AsyncCacheClient"]
