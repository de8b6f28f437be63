"""Entries that can't be read: counted each time, logged once a query and reason."""

from __future__ import annotations

import logging
from typing import Final

from api_client.events import ReaderEvents
from api_client.keys import CacheKey

log: Final = logging.getLogger(__name__)

MOST_REMEMBERED: Final = 1_000


class Unreadable:
    """Tells events of each unreadable entry, and the log of the first of its kind."""

    def __init__(self, events: ReaderEvents) -> None:
        self._events = events
        self._logged: set[tuple[str, str]] = set()

    def note(self, key: CacheKey, reason: str) -> None:
        """Count an entry under ``key`` that is no entry of this release, for ``reason``."""
        self._events.unreadable_entry(key.query, reason=reason)
        kind = (key.query, reason)
        if kind not in self._logged and len(self._logged) < MOST_REMEMBERED:
            self._logged.add(kind)
            log.warning("an entry of %s (%s) can't be read (%s); it counts as a miss", key.query, key.short, reason)
