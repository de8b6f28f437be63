"""Batches of refreshes: what is due of one query at about the same time travels in one message.

::

    claims granted ──▶ its workers load one by one ──▶ a message each
                   └─▶ in batches, and more are on their way ──▶ held, at most 2 ms ──▶ one message of many

A worker says which versions of a query are loaded in batches; a publisher looks it up when it has several to send.
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
# Of all params. In a message each may take six bytes, and workers read no message beyond a megabyte.
MAX_PARAMS_UNITS: Final = 120_000
LOOKED_UP_SECONDS: Final = 30.0


class BatchedVersions:
    """Knows of each query which versions are loaded in batches; looked up at most every half a minute."""

    def __init__(self, link: CacheLink, namespace: str, *, monotonic: Callable[[], float]) -> None:
        self._link, self._namespace, self._monotonic = link, namespace, monotonic
        self._known: dict[str, tuple[float, frozenset[int]]] = {}

    def are_batched(self, key: CacheKey) -> bool:
        """Return whether the key's version is loaded in batches, as far as Redis says so."""
        until, versions = self._known.get(key.query, (0.0, frozenset[int]()))
        now = self._monotonic()
        if now >= until:
            try:
                # No script: those need the right to write.
                (members,) = self._link.execute_all([("ZRANGE", versions_key(self._namespace, key.query), 0, -1)])
                # Else an error reply: this user may not read it, say.
                versions = batched_versions(members) if isinstance(members, list) else frozenset()
            except CacheUnavailable:
                versions = frozenset()
            if len(self._known) >= MAX_QUERIES_REMEMBERED:
                self._known.clear()
            self._known[key.query] = now + LOOKED_UP_SECONDS, versions
        return key.version in versions


@dataclass(slots=True)
class HeldBatch:
    """Refreshes of one query, held since a time by the monotonic clock until they are sent as one message."""

    since: float
    held: list[Trigger] = field(default_factory=list)
    params_units: int = 0
    """Of UTF-16, as JSON escapes them."""

    def add(self, trigger: Trigger) -> None:
        """Hold one more."""
        self.held.append(trigger)
        self.params_units += len(trigger.key.canonical_params.encode("utf-16-le")) // 2

    def is_due(self, now: float) -> bool:
        """Return whether it is to be sent although more is on its way."""
        is_full = len(self.held) >= MAX_BATCH or self.params_units >= MAX_PARAMS_UNITS
        return is_full or now >= self.since + HOLD_SECONDS
