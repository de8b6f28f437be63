"""One entry as the in-process tier keeps it, and as those who share a reply do: what is decoded once, and for whom."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

from api_client import xfetch
from api_client.entry import FIXED_HEADER_BYTES, Header
from api_client.payload import decode_content
from api_client.shareable import copied_bytes, copier_of, is_shareable

NOT_KEPT: Final = object()
"""In the place of a value that is decoded anew at each read, because a caller might change it."""

ENTRY_OVERHEAD_BYTES: Final = 1_024  # the objects around an entry: header, key, dict slot (measured, and rounded up)
EXTENSION_GROWTH: Final = 8  # a sample of δ is 4 bytes in the header's extension, and an object of 32 beside it
SHARED_GROWTH: Final = 24  # objects against their bytes: 4 for rows in Structs, 23 for tuples of one number (measured)
LARGEST_COPIED_BYTES: Final = 65_536
"""Of a payload; a larger one would take the tier's room for many others, decoded."""


class LocalEntry:
    """One entry as the tier keeps it.

    Args:
        content: the payload, not compressed.
        header: of the entry.
        earliest_at: monotonic seconds; before then no draw can ask for a refresh.
        value: the decoded value where several callers may have it, or copies of it (`shareable`); else NOT_KEPT.
        type_: what it was decoded as; where it is not kept, what no caller asks for.
        copy: makes the copy for each caller; None: they may have the value itself.

    Attributes:
        expires_at: monotonic seconds; from here on it may not be served. Set by `LocalTier.fill`.
        quiet_until: monotonic seconds, the earlier of the two: until then a hit has nothing to decide. Set with it.
        used: set by whoever serves it; such an entry is evicted later than others.
        held_bytes: the memory that it takes, about. Set by `LocalTier.fill`.
    """

    __slots__ = (
        "content", "copy", "earliest_at", "expires_at", "header", "held_bytes", "quiet_until", "type_", "used", "value",
    )  # fmt: skip

    def __init__(
        self,
        content: bytes,
        header: Header,
        earliest_at: float,
        value: Any = NOT_KEPT,
        type_: Any = NOT_KEPT,
        copy: Callable[[Any], Any] | None = None,
    ) -> None:
        self.content: bytes = content
        self.header: Header = header
        self.earliest_at: float = earliest_at
        self.value: Any = value
        self.type_: Any = type_
        self.copy: Callable[[Any], Any] | None = copy
        self.expires_at: float = 0.0
        self.quiet_until: float = 0.0
        self.held_bytes: int = 0
        self.used: bool = False

    def size_bytes(self) -> int:
        """Reckon the memory that it takes, about."""
        size = ENTRY_OVERHEAD_BYTES + len(self.content)
        size += EXTENSION_GROWTH * (self.header.length - FIXED_HEADER_BYTES)
        if self.value is NOT_KEPT:
            return size
        if self.copy is not None:
            return size + copied_bytes(self.value)
        flat = isinstance(self.value, str | bytes | int | float | None)
        return size + (sys.getsizeof(self.value) if flat else SHARED_GROWTH * len(self.content))


def earliest_us(header: Header) -> int:
    """Return when a draw can ask for a refresh at the earliest, in µs of Redis' clock; 0: each read has to decide."""
    if header.generation > header.token:
        return 0  # invalidated: every read asks
    try:
        return xfetch.earliest_positive_us(
            header.soft_expiry_us, delta_seconds=header.delta.mean, beta=header.beta, ttl_seconds=header.ttl_seconds
        )
    except (ValueError, OverflowError):  # NaN or infinite, which no worker writes
        return 0


def local_entry(content: bytes, header: Header, earliest_at: float, value: Any, type_: Any) -> LocalEntry:
    """Return an entry that keeps its value, too, where several callers may have it, or copies of it."""
    if is_shareable(value, type_):
        return LocalEntry(content, header, earliest_at, value, type_)
    copier = copier_of(value) if len(content) <= LARGEST_COPIED_BYTES else None
    if copier is None:
        return LocalEntry(content, header, earliest_at)
    return LocalEntry(content, header, earliest_at, value, type_, copier)


def value_of(kept: LocalEntry, type_: Any, query: str) -> Any:
    """Return the caller's own value of a kept entry.

    Raises:
        DecodeError.
    """
    if kept.type_ is not type_:
        return decode_content(kept.content, type_, query)
    copy = kept.copy
    return kept.value if copy is None else copy(kept.value)
