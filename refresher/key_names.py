"""Reads the names of keys in Redis. How they are spelled is known to `api_client.keys` alone."""

from __future__ import annotations

from typing import Final

from api_client.errors import InvalidQuery
from api_client.keys import DIGEST_BYTES, CacheKey, entry_prefix, key_of_digest

_ANY: Final = key_of_digest("n", "q", 1, bytes(DIGEST_BYTES))
_HEX_DIGITS: Final = 2 * DIGEST_BYTES


class KeyNames:
    """Tells what the keys of a namespace are."""

    def __init__(self, namespace: str) -> None:
        self.namespace: str = namespace
        self.pattern: str = f"{namespace}:*"
        self._entry_prefix = entry_prefix(namespace)
        self._record_prefix = namespace + _ANY.record.partition("{")[0].removeprefix("n")

    def query_of_entry(self, name: str) -> str | None:
        """Return the query of an entry's name, and None of every other; quick, for many names."""
        if not name.startswith(self._entry_prefix):
            return None
        return name[len(self._entry_prefix) + 1 :].partition(":")[0]

    def is_record(self, name: str) -> bool:
        """Tell whether a name is that of a lease record."""
        return name.startswith(self._record_prefix)

    def key(self, name: str) -> CacheKey | None:
        """Return the key that an entry, a record or a channel is named after; None: it is none of this namespace."""
        query, _, rest = name.partition("{")[2].removesuffix("}").partition(":")
        version, _, digest = rest.partition(":")
        if not version.isdecimal() or len(version) > len("65535") or len(digest) != _HEX_DIGITS:
            return None
        try:
            key = key_of_digest(self.namespace, query, int(version), bytes.fromhex(digest))
        except (InvalidQuery, ValueError):
            return None
        return key if name in {key.entry, key.record, key.channel} else None
