"""Trigger suppression: at most one refresh trigger per key and process while an earlier one still counts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from api_client.threads import Mutex

MAX_SUPPRESSION_SECONDS: Final = 1.0


class TriggerSuppressor:
    """The keys whose refresh this process has triggered, for as long as a trigger counts.

    A trigger counts for at most 1 s, and no longer once the entry has changed. The mark identifies an entry: the larger
    of token and generation, which grow as long as entry or record exists. So a late read with an entry that has been
    replaced triggers nothing either.

    Thread-safe. Every read past the soft expiry comes here, so a suppressed key takes no lock.
    """

    def __init__(self, *, monotonic: Callable[[], float], max_keys: int = 10_000) -> None:
        self._monotonic, self._max_keys = monotonic, max_keys
        self._until: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._marked = self._until.get
        self._lock = Mutex()

    def is_suppressed(self, entry_key: str, mark: int) -> bool:
        """Return whether a trigger for the entry with this mark still counts."""
        marked = self._marked(entry_key)
        return marked is not None and mark <= marked[0] and self._monotonic() < marked[1]

    def left_seconds(self, entry_key: str) -> float:
        """Return how long triggers of this key are still suppressed; 0 if they are not."""
        marked = self._marked(entry_key)
        return 0.0 if marked is None else max(0.0, marked[1] - self._monotonic())

    def try_mark(self, entry_key: str, mark: int, left_seconds: float) -> bool:
        """Suppress further triggers for ``left_seconds``; return False if they already are suppressed."""
        # `is_suppressed`, inlined: past the soft expiry the call would be a third of the cost.
        marked = self._marked(entry_key)
        if marked is not None and mark <= marked[0] and self._monotonic() < marked[1]:
            return False
        with self._lock:
            if self.is_suppressed(entry_key, mark):
                return False
            self._set(entry_key, mark, left_seconds)
            return True

    def update(self, entry_key: str, mark: int, left_seconds: float) -> None:
        """Set the suppression time from a claim's reply; the mark of a newer entry stays."""
        with self._lock:
            marked = self._marked(entry_key)
            if marked is None or marked[0] <= mark:
                self._set(entry_key, mark, left_seconds)

    def forget(self) -> None:
        """End all suppression, for applications' tests, in which time passes without the clock."""
        with self._lock:
            self._until.clear()

    def _set(self, entry_key: str, mark: int, left_seconds: float) -> None:
        self._until[entry_key] = (mark, self._monotonic() + min(left_seconds, MAX_SUPPRESSION_SECONDS))
        self._until.move_to_end(entry_key)
        while len(self._until) > self._max_keys:
            self._until.popitem(last=False)
