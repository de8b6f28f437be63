"""What a process was told of the keys for which it asked: one trigger a key, however many threads read it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

LONGEST_SILENCE_SECONDS: Final = 1.0


class AskedRecently:
    """What this process was told of a key.

    It asks no more for as long as that lasts, at most 1 s, and at once when the entry carries another token.
    """

    def __init__(self, *, monotonic: Callable[[], float], most: int = 10_000) -> None:
        self._monotonic, self._most = monotonic, most
        self._until: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._lock = threading.Lock()

    def covers(self, entry_key: str, token: int) -> bool:
        """Tell whether a refresh of the entry with this token has been asked for, and the answer still holds."""
        told = self._until.get(entry_key)
        return told is not None and told[0] == token and self._monotonic() < told[1]

    def note(self, entry_key: str, token: int, left_seconds: float) -> bool:
        """Note an answer that holds for ``left_seconds``; False when a note that still holds was there before."""
        with self._lock:
            if self.covers(entry_key, token):
                return False
            self._set(entry_key, token, left_seconds)
            return True

    def correct(self, entry_key: str, token: int, left_seconds: float) -> None:
        """Replace a note by what is known better now."""
        with self._lock:
            self._set(entry_key, token, left_seconds)

    def _set(self, entry_key: str, token: int, left_seconds: float) -> None:
        self._until[entry_key] = (token, self._monotonic() + min(left_seconds, LONGEST_SILENCE_SECONDS))
        self._until.move_to_end(entry_key)
        if len(self._until) > self._most:
            self._until.popitem(last=False)
