"""The in-process tier: entries in this process's memory, dropped by Redis' invalidations.

The hard part is a value in transit, which could otherwise be kept, outdated, for as long as its age allows::

    reader     begin   GET ─────────── old value ──────── fill
    Redis                  ▲    SET ─┐
    link                               ▼ invalidation: nothing there to drop yet

So a read announces itself before it sends its GET (`begin`), an invalidation ends all pending fills of its key, and
`fill` refuses an ended one. `tracking` listens to Redis, and turns the tier off while it can't.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from api_client.local.entry import LocalEntry
from api_client.protocol.clock import monotonic_seconds
from api_client.protocol.entry import Header
from api_client.threads import Mutex

MAX_FILLS: Final = 16_384
MAX_SECOND_CHANCES: Final = 32
KEYS_AT_ONCE: Final = 1_024


@dataclass(slots=True, eq=False)
class Fill:
    """A read of one key in progress; made by `LocalTier.begin`."""

    entry_key: str
    begun_at: float


class LocalTier:
    """Entries by their Redis keys. Thread-safe; empty and bypassed until `resume`.

    A hit is ``tier.entries.get(key)`` and a comparison with ``expires_at``; it takes no lock and moves nothing.
    ``entries`` is always the same object, and only the tier changes it.

    Args:
        max_entries: the largest number of entries.
        max_bytes: their largest approximate memory.
        max_age_seconds: their largest age, counted from before the GET was sent; it bounds the effect of a lost
            invalidation.
        monotonic: the clock, in seconds.

    Attributes:
        held_bytes: the approximate memory of the entries.
    """

    def __init__(
        self,
        *,
        max_entries: int,
        max_bytes: int,
        max_age_seconds: float,
        monotonic: Callable[[], float] = monotonic_seconds,
    ) -> None:
        # Ordered by age, so that the next entry to evict is first, and found without passing over removed ones.
        self.entries: OrderedDict[str, LocalEntry] = OrderedDict()
        self._max_entries, self._max_bytes = max_entries, max_bytes
        self._max_age_seconds, self._monotonic = max_age_seconds, monotonic
        self._lock = Mutex()
        self._bypassed = True
        self.held_bytes: int = 0
        self._fills: dict[str, set[Fill]] = {}
        self._fill_count = 0

    @property
    def is_bypassed(self) -> bool:
        """True while nothing is kept because no invalidations are received."""
        return self._bypassed

    def begin(self, entry_key: str) -> Fill | None:
        """Announce a read before its GET is sent; return None while bypassed. `fill` or `abandon` end the read."""
        if self.is_bypassed:
            return None
        fill = Fill(entry_key, self._monotonic())
        with self._lock:
            if self._bypassed:
                return None
            if self._fill_count >= MAX_FILLS:
                # More than are ever in progress, so some have leaked. Ending one costs a fill, never a wrong value.
                self._end_all_fills()
            self._fills.setdefault(entry_key, set()).add(fill)
            self._fill_count += 1
        return fill

    def fill(self, fill: Fill, entry: LocalEntry) -> bool:
        """Keep the entry that was read; return False if it may not be kept.

        It may not be kept if its key, or everything, was invalidated since `begin`; if a newer entry is already there,
        so that this process's reads do not go back; if it is larger than the whole tier; or if it is a handoff.
        """
        key, now = fill.entry_key, self._monotonic()
        entry.held_bytes = entry.size_bytes()
        with self._lock:
            if not self._end_fill(fill):
                return False
            there = self.entries.get(key)
            if there is not None:
                if there.expires_at > now and _version(there.header) > _version(entry.header):
                    return False
                self._remove(key, there)
            entry.expires_at = fill.begun_at + self._max_age_seconds
            entry.quiet_until = min(entry.expires_at, entry.earliest_at)
            if entry.header.is_handoff or entry.held_bytes > self._max_bytes or entry.expires_at <= now:
                return False
            self.entries[key] = entry
            self.held_bytes += entry.held_bytes
            self._make_room(now)
        return True

    def abandon(self, fill: Fill) -> None:
        """End a read without an entry to keep; may be called repeatedly, and after `fill`."""
        with self._lock:
            self._end_fill(fill)

    def drop(self, entry_key: str) -> None:
        """Forget one key that this process has just changed, and end its pending fills."""
        self.drop_all((entry_key,))

    def drop_all(self, entry_keys: Sequence[str]) -> None:
        """Forget these keys, and end their pending fills. Absent keys cost little."""
        for start in range(0, len(entry_keys), KEYS_AT_ONCE):
            some = entry_keys[start : start + KEYS_AT_ONCE]
            with self._lock:  # released in between, so that a storm of invalidations does not block readers
                for key in self.entries.keys() & some:
                    self._remove(key, self.entries[key])
                for key in self._fills.keys() & some:
                    self._fill_count -= len(self._fills.pop(key))

    def drop_expired(self) -> None:
        """Remove at most a thousand entries past their age, oldest first."""
        now = self._monotonic()
        with self._lock:
            for _ in range(KEYS_AT_ONCE):
                key = next(iter(self.entries), None)
                if key is None or self.entries[key].expires_at > now:
                    return
                self._remove(key, self.entries[key])

    def clear(self) -> None:
        """Forget everything, and end all fills."""
        with self._lock:
            self._clear()

    def bypass(self) -> None:
        """Forget everything and keep nothing until `resume`, because the link is lost."""
        with self._lock:
            self._bypassed = True
            self._clear()

    def leave_parent(self) -> None:
        """Forget everything in a forked child, where a thread of the parent may have held the lock."""
        self._lock = Mutex()
        self.bypass()

    def resume(self) -> None:
        """Start keeping entries, since every invalidation is received from now on."""
        with self._lock:
            self._clear()
            self._bypassed = False

    def _clear(self) -> None:
        self.entries.clear()
        self.held_bytes = 0
        self._end_all_fills()

    def _remove(self, key: str, entry: LocalEntry) -> None:
        del self.entries[key]
        self.held_bytes -= entry.held_bytes

    def _end_fill(self, fill: Fill) -> bool:
        """End a fill; return whether it was still pending."""
        of_key = self._fills.get(fill.entry_key)
        if of_key is None or fill not in of_key:
            return False
        of_key.discard(fill)
        if not of_key:
            del self._fills[fill.entry_key]
        self._fill_count -= 1
        return True

    def _end_all_fills(self) -> None:
        self._fills.clear()
        self._fill_count = 0

    def _make_room(self, now: float) -> None:
        chances = MAX_SECOND_CHANCES
        if not self.entries:  # an exception in between has left the count too high
            self.held_bytes = 0
        while len(self.entries) > self._max_entries or self.held_bytes > self._max_bytes:
            key, entry = next(iter(self.entries.items()))
            if entry.used and entry.expires_at > now and chances:
                # The CLOCK rule, bounded so that one fill never walks through a whole hot tier.
                entry.used = False
                self.entries.move_to_end(key)
                chances -= 1
            else:
                self._remove(key, entry)


def _version(header: Header) -> tuple[int, int]:
    return header.token, header.generation
