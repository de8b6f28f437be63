"""Loads in place: a read that would wait for a refresh loads the query itself if its process can.

A worker registers its loader (`use`); the client knows it only as `LoadsInPlace`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol, TypeAlias

from api_client.config.settings import ReaderSettings
from api_client.protocol.entry import Header
from api_client.protocol.keys import CacheKey


class InPlaceEnd(Enum):
    """Outcome of a load in place."""

    ENDED = auto()
    """There is an entry, a failure or a retry to look at."""
    HELD = auto()
    """Another process holds the key."""
    DEFERRED = auto()
    """Nobody has loaded it, since its budget had no share or the time was up. A worker may still load it."""


class Wanted(NamedTuple):
    """A key to load; ``claim_number`` is the number of the claim in its record."""

    key: CacheKey
    claim_number: int


class LoadsInPlace(Protocol):
    """Loads queries in this process, on the calling thread."""

    def has(self, key: CacheKey) -> bool:
        """Return whether the key's query is known here."""

    def check(self, key: CacheKey) -> None:
        """Check that a read of the key may wait here.

        Raises:
            RefreshFailed: a load that waits for this read needs the same key, or too many loads wait for each other.
        """

    def load(self, wanted: Sequence[Wanted], timeout_seconds: float) -> Sequence[InPlaceEnd]:
        """Load keys of one query and version, each under its own lease; return their outcomes in order.

        Keys that are not loaded within ``timeout_seconds`` are left to a worker.

        Raises:
            CacheUnavailable: Redis did not answer.
            BaseException: the calling thread was interrupted; the load has been handed back.
        """


followers: Final[list[Callable[[CacheKey, Header], None]]] = []
"""Callbacks for each entry that a read of this process returns, for loads that depend on what they read."""

_Cache: TypeAlias = tuple[str, str]
_loaders: Final[dict[_Cache, LoadsInPlace]] = {}


def use(redis_url: str, namespace: str, loader: LoadsInPlace | None) -> None:
    """Make reads of this process load with ``loader`` instead of waiting; None makes them wait again."""
    if loader is None:
        _loaders.pop((redis_url, namespace), None)
    else:
        _loaders[redis_url, namespace] = loader


def loader_of(key: CacheKey, settings: ReaderSettings) -> LoadsInPlace | None:
    """Return the loader for the key's query in this process, or None."""
    loader = _loaders.get((settings.redis_url, settings.namespace))
    return loader if loader is not None and loader.has(key) else None
