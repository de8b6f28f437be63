"""Entries that are read again and again and have not changed: their bytes are compared, and not decoded once more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from api_client.errors import DecodeError
from api_client.local.entry import LocalEntry, earliest_us, local_entry
from api_client.protocol import payload
from api_client.protocol.clock import TOLERANCE_US
from api_client.protocol.entry import UnreadableEntry, decode_header
from api_client.protocol.keys import CacheKey

MOST: Final = 256
MAX_BYTES: Final = 4_096


@dataclass(frozen=True, slots=True)
class CachedDecode:
    """What is known of the bytes of an entry; all but ``raw`` once they have come a second time.

    ``earliest_us`` is Redis' time before which no draw can ask for a refresh; ``stored_us`` when it was stored, less
    what is tolerated: before that the clock must have been set back.
    """

    raw: bytes
    entry: LocalEntry | None = None
    stored_us: int = 0
    earliest_us: int = 0


class UnchangedEntryCache:
    """The last few hundred entries of up to 4 KiB, and the last larger one. Thread-safe.

    This is no cache of values: Redis was asked, and has answered with the very same bytes. It spares the decoding of
    what is read often, and lets those who share a reply share what can be said of it.

    Two generations bound it: when the young one is full it becomes the old one, and the old one is dropped.
    """

    def __init__(self, max_value_bytes: int) -> None:
        self._max_value_bytes = max_value_bytes
        self._young: dict[str, CachedDecode] = {}
        self._old: dict[str, CachedDecode] = {}
        self._large: tuple[str, CachedDecode] | None = None

    def get(self, key: CacheKey, raw: bytes, type_: object) -> CachedDecode | None:
        """Return what is known of these bytes, with an entry; None the first time, and where they can't be shared.

        Bytes that do not fit ``type_`` can't: their reader triggers a refresh before it raises.

        Args:
            key, raw: the entry as it was read.
            type_: what to decode it as where that has to be done.
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
            self._remember(entry_key, known)  # it is young again
        return known

    def _decoded(self, key: CacheKey, raw: bytes, type_: object) -> CachedDecode | None:
        try:
            header = decode_header(raw, key.digest)
        except UnreadableEntry:
            return None
        if header.is_handoff:
            return None
        try:
            content = payload.content_of(raw, header, key.query, self._max_value_bytes)
            value = payload.decode(content, type_, key.query)
        except DecodeError:
            return None
        kept = local_entry(content, header, 0.0, value, type_)
        repeat = CachedDecode(raw, kept, header.fetched_at_us - TOLERANCE_US, earliest_us(header))
        self._remember(key.entry, repeat)
        return repeat

    def _remember(self, entry_key: str, repeat: CachedDecode) -> None:
        if len(repeat.raw) > MAX_BYTES:
            self._large = entry_key, repeat
            return
        young = self._young
        young[entry_key] = repeat
        if len(young) > MOST:
            self._old, self._young = young, {}
