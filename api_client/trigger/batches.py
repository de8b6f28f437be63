"""Batches of refreshes: one message for the refreshes of a query that are due at about the same time.

::

    claims granted ──▶ workers load them one by one ──▶ a message each
                   └─▶ workers load batches, more claims follow ──▶ held, at most 2 ms ──▶ one message for many

Workers register the versions of a query that they load in batches; a publisher with several refreshes looks them up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from api_client.errors import CacheUnavailable
from api_client.protocol.keys import CacheKey, versions_key
from api_client.protocol.live_versions import MAX_QUERIES_REMEMBERED, batched_versions
from api_client.protocol.messages import MAX_BATCH
from api_client.transport.link import CacheLink
from api_client.trigger.backlog import Trigger

HOLD_SECONDS: Final = 0.002
# For all params together. Each unit may take six bytes in a message, and workers read none beyond a megabyte.
MAX_PARAMS_UNITS: Final = 120_000
LOOKED_UP_SECONDS: Final = 30.0


class BatchedVersions:
    """The versions of each query that are loaded in batches, looked up at most every half a minute."""

    def __init__(self, link: CacheLink, namespace: str, *, monotonic: Callable[[], float]) -> None:
        self._link, self._namespace, self._monotonic = link, namespace, monotonic
        self._known: dict[str, tuple[float, frozenset[int]]] = {}

    def are_batched(self, key: CacheKey) -> bool:
        """Return whether the key's version is loaded in batches, as far as Redis knows."""
        until, versions = self._known.get(key.query, (0.0, frozenset[int]()))
        now = self._monotonic()
        if now >= until:
            try:
                # Not by a script, which needs permission to write.
                (members,) = self._link.execute_all([("ZRANGE", versions_key(self._namespace, key.query), 0, -1)])
                # Otherwise an error reply: this user may not read it, say.
                versions = batched_versions(members) if isinstance(members, list) else frozenset()
            except CacheUnavailable:
                versions = frozenset()
            if len(self._known) >= MAX_QUERIES_REMEMBERED:
                self._known.clear()
            self._known[key.query] = now + LOOKED_UP_SECONDS, versions
        return key.version in versions


@dataclass(slots=True)
class HeldBatch:
    """Refreshes of one query, held since a monotonic time until they are sent as one message."""

    since: float
    held: list[Trigger] = field(default_factory=list)
    params_units: int = 0
    """UTF-16 code units, as JSON escapes them."""

    def add(self, trigger: Trigger) -> None:
        """Hold another trigger."""
        self.held.append(trigger)
        self.params_units += len(trigger.key.canonical_params.encode("utf-16-le")) // 2

    def is_due(self, now: float) -> bool:
        """Return whether the batch is to be sent without waiting for more."""
        is_full = len(self.held) >= MAX_BATCH or self.params_units >= MAX_PARAMS_UNITS
        return is_full or now >= self.since + HOLD_SECONDS
