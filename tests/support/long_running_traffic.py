"""Traffic of one reader while releases come and go: ``python long_running_traffic.py NAME STATUS_FILE``.

Run it with the Python of the release under test, outside of this tree. It reads a few keys that grow stale, now and
then a new one, and invalidates one and waits for the load after that. SIGTERM ends it. The status file has the counts
so far: passes, errors, values older than one that was read before, and unreadable entries, by reason.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections import Counter
from pathlib import Path

from api_client import CacheClient, CacheError, ReaderEvents, ReaderSettings

KEYS = [f"shared-{number}" for number in range(6)]
WAIT_SECONDS = 120
PAUSE_SECONDS = 0.02


class Unreadable(ReaderEvents):
    """Counts entries that could not be read, by reason."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def unreadable_entry(self, query: str, *, reason: str) -> None:
        self.counts[reason] += 1


class Traffic:
    """One reader."""

    def __init__(self, client: CacheClient, name: str) -> None:
        self._client, self._name = client, name
        self.passes = 0
        self.errors: list[str] = []
        self.went_back: list[str] = []
        self._tokens: dict[str, int] = {}

    def go_on(self) -> None:
        """Read everything once."""
        for key in KEYS:
            self._try(key)
        if self.passes % 10 == 0:
            self._try(f"{self._name}-{self.passes}")
        if self.passes % 10 == 5:
            self._invalidate(KEYS[self.passes // 10 % len(KEYS)])
        self.passes += 1

    def _try(self, key: str, **floor: int) -> None:
        try:
            entry = self._client.get_entry("short_lived", {"key": key}, timeout=WAIT_SECONDS, **floor)
        except CacheError as error:
            self.errors.append(f"pass {self.passes}, {key}: {error!r}")
            return
        if entry.value["key"] != key or entry.token < max(self._tokens.get(key, 0), floor.get("min_generation", 0)):
            self.went_back.append(f"pass {self.passes}, {key}: {entry}")
        self._tokens[key] = entry.token

    def _invalidate(self, key: str) -> None:
        try:
            generation = self._client.invalidate("short_lived", {"key": key}).generation
        except CacheError as error:
            self.errors.append(f"pass {self.passes}, {key}: {error!r}")
        else:
            self._try(key, min_generation=generation)


def main(name: str, status: Path) -> None:
    """Read until SIGTERM."""
    ends = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ends.set())
    events = Unreadable()
    with CacheClient(ReaderSettings.from_env(os.environ), events=events) as client:
        traffic = Traffic(client, name)
        while not ends.wait(PAUSE_SECONDS):
            traffic.go_on()
            report = {
                "passes": traffic.passes,
                "errors": traffic.errors,
                "went_back": traffic.went_back,
                "unreadable": events.counts,
            }
            written = status.with_suffix(".new")
            written.write_text(json.dumps(report))
            written.replace(status)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
