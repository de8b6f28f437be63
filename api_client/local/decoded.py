"""Cache of decoded entries: bytes that recur are compared instead of decoded again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from api_client.errors import DecodeError
from api_client.local.entry import LocalEntry, decode_entry, earliest_us
from api_client.protocol.clock import TOLERANCE_US
from api_client.protocol.entry import UnreadableEntry, decode_header
from api_client.protocol.keys import CacheKey

MAX_YOUNG: Final = 256
MAX_BYTES: Final = 4_096


@dataclass(frozen=True, slots=True)
class CachedDecode:
    """The bytes of an entry and, after their second appearance, the decoded entry.

    ``earliest_us`` is Redis' time before which no draw can trigger a refresh. ``stored_us`` is the time of storing less
    the tolerance; before it, the clock must have been set back.
    """

    raw: bytes
    entry: LocalEntry | None = None
    stored_us: int = 0
    earliest_us: int = 0


class DecodedEntryCache:
    """The last few hundred entries of at most 4 KiB, and the last larger one. Thread-safe.

    It never serves old values, because Redis has replied with the very same bytes. It saves decoding popular entries
    again, and waiters that share a reply share its decoding.

    Two generations bound it: when the young one is full it replaces the old one.
    """

    def __init__(self, max_value_bytes: int) -> None:
        self._max_value_bytes = max_value_bytes
        self._young: dict[str, CachedDecode] = {}
        self._old: dict[str, CachedDecode] = {}
        self._large: tuple[str, CachedDecode] | None = None

    def get(self, key: CacheKey, raw: bytes, type_: object) -> CachedDecode | None:
        """Return these bytes decoded; None the first time, and if the value can't be shared.

        A value that does not fit ``type_`` can't be shared, since its reader triggers a refresh before it raises.

        Args:
            key, raw: the entry as read.
            type_: the type for decoding, if that is needed.
        """
        known = self._young.get(key.entry) or self._known(key.entry)
        if known is None or known.raw != raw:
            self._remember(key.entry, CachedDecode(raw))
            return None
        if known.entry is not None:
            return known
        return self._decoded(key, raw, type_)

    def _known(self, entry_key: str) -> CachedDecode | None:
        large = self._large
        if large is not None and large[0] == entry_key:
            return large[1]
        known = self._old.get(entry_key)
        if known is not None:
            self._remember(entry_key, known)  # young again
        return known

    def _decoded(self, key: CacheKey, raw: bytes, type_: object) -> CachedDecode | None:
        try:
            header = decode_header(raw, key.digest)
            if header.is_handoff:
                return None
            _, entry = decode_entry(raw, header, type_, key.query, self._max_value_bytes)
        except (UnreadableEntry, DecodeError):
            return None
        decoded = CachedDecode(raw, entry, header.fetched_at_us - TOLERANCE_US, earliest_us(header))
        self._remember(key.entry, decoded)
        return decoded

    def _remember(self, entry_key: str, decoded: CachedDecode) -> None:
        if len(decoded.raw) > MAX_BYTES:
            self._large = entry_key, decoded
            return
        young = self._young
        young[entry_key] = decoded
        if len(young) > MAX_YOUNG:
            self._old, self._young = young, {}
