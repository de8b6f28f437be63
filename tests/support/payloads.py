"""The value of a payload without an entry around it, by the reader's one decode path."""

from __future__ import annotations

from typing import Any

from api_client.protocol import payload
from tests.support.lease_world import a_header


def read_payload(
    raw: bytes, type_: Any = Any, *, offset: int = 0, is_compressed: bool = False, query: str = "q", max_bytes: int
) -> Any:
    """Return the value of the payload that begins at ``offset``."""
    header = a_header(1, length=offset, is_compressed=is_compressed)
    return payload.decode(payload.content_of(raw, header, query, max_bytes), type_, query)
