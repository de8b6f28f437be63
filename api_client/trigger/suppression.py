"""What a process was told of the keys for which it asked: one trigger a key, however many threads read it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

MAX_SUPPRESSION_SECONDS: Final = 1.0


class TriggerSuppressor:
    """What this process was told of a key.

    It asks no more for as long as that lasts, at most 1 s, and at once when the entry has become another one. Which
    entry is meant is told by its number: the larger one of token and generation, which grow as long as entry or
    record is there. So a reader that decides late, by an entry that has been replaced since, asks no more either.

    Thread-safe. Past the soft expiry every read comes here, so a key that is covered costs no lock.
    """

    def __init__(self, *, monotonic: Callable[[], float], most: int = 10_000) -> None:
        self._monotonic, self._most = monotonic, most
        self._until: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._told = self._until.get
        self._lock = threading.RLock()

    def covers(self, entry_key: str, number: int) -> bool:
        """Tell whether a refresh of the entry with this number has been asked for, and the answer still holds."""
        told = self._told(entry_key)
        return told is not None and number <= told[0] and self._monotonic() < told[1]

    def left_seconds(self, entry_key: str) -> float:
        """Return for how long what was told of this key holds; 0 when nothing does."""
        told = self._told(entry_key)
        return 0.0 if told is None else max(0.0, told[1] - self._monotonic())

    def note(self, entry_key: str, number: int, left_seconds: float) -> bool:
        """Note an answer that holds for ``left_seconds``; False when a note that still holds was there before."""
        # As `covers`, written out: on the path of each read past the soft expiry a call is a third of the cost.
        told = self._told(entry_key)
        if told is not None and number <= told[0] and self._monotonic() < told[1]:
            return False
        with self._lock:
            if self.covers(entry_key, number):
                return False
            self._set(entry_key, number, left_seconds)
            return True

    def correct(self, entry_key: str, number: int, left_seconds: float) -> None:
        """Replace a note by what is known better now; one of a newer entry stays."""
        with self._lock:
            told = self._told(entry_key)
            if told is None or told[0] <= number:
                self._set(entry_key, number, left_seconds)

    def forget(self) -> None:
        """Forget all that was told: for tests of applications, in which time passes without a clock's knowledge."""
        with self._lock:
            self._until.clear()

    def _set(self, entry_key: str, number: int, left_seconds: float) -> None:
        self._until[entry_key] = (number, self._monotonic() + min(left_seconds, MAX_SUPPRESSION_SECONDS))
        self._until.move_to_end(entry_key)
        while len(self._until) > self._most:
            self._until.popitem(last=False)
