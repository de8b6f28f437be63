"""Loads in place: where this process may load a query itself, a read that would wait for a refresh does so.

A worker registers how (`use`); the client knows no more of it than `LoadsInPlace`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol, TypeAlias

from api_client.config.settings import ReaderSettings
from api_client.protocol.entry import Header
from api_client.protocol.keys import CacheKey


class InPlaceEnd(Enum):
    """The end of a load in place."""

    ENDED = auto()
    """There is an entry, a failure or a retry to be seen now."""
    HELD = auto()
    """Another process has the key."""
    DEFERRED = auto()
    """Nobody has loaded it: its budget has no share, or the time was up. A worker may."""


class Wanted(NamedTuple):
    """A key to be loaded; ``claim_number`` is that of the claim that waits in its record."""

    key: CacheKey
    claim_number: int


class LoadsInPlace(Protocol):
    """Loads queries in this process, on the calling thread."""

    def has(self, key: CacheKey) -> bool:
        """Return whether it knows the key's query."""

    def check(self, key: CacheKey) -> None:
        """Check that a read of the key may wait here.

        Raises:
            RefreshFailed: a load that waits for this read needs the same key, or too many loads wait for each other.
        """

    def load(self, wanted: Sequence[Wanted], timeout_seconds: float) -> Sequence[InPlaceEnd]:
        """Load keys of one query and version under leases of their own; in their order how each ended.

        What was not loaded after ``timeout_seconds`` is left to a worker.

        Raises:
            CacheUnavailable: Redis did not answer.
            BaseException: what interrupts the calling thread; the load has been handed back.
        """


followers: Final[list[Callable[[CacheKey, Header], None]]] = []
"""Told of each entry that a read of this process returns: loads that depend on what they read."""

_Cache: TypeAlias = tuple[str, str]
_loaders: Final[dict[_Cache, LoadsInPlace]] = {}


def use(redis_url: str, namespace: str, loader: LoadsInPlace | None) -> None:
    """Have reads of this process load by ``loader`` what they would wait for; None: wait, as elsewhere."""
    if loader is None:
        _loaders.pop((redis_url, namespace), None)
    else:
        _loaders[redis_url, namespace] = loader


def loader_of(key: CacheKey, settings: ReaderSettings) -> LoadsInPlace | None:
    """Return what loads the key's query in this process; None: nothing does."""
    loader = _loaders.get((settings.redis_url, settings.namespace))
    return loader if loader is not None and loader.has(key) else None
