"""Samples of the last hour for the page's plots, polled while the page is served, and kept only in memory."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from refresher.ops.status import Status

MAX_KEPT: Final = 720


class History:
    """Polls every few seconds, on its own thread, from `start` to `close`.

    Args:
        poll: returns the state; must not raise.
        every_seconds: the pause between two polls.
    """

    def __init__(self, poll: Callable[[], Status], every_seconds: float) -> None:
        self._poll = poll
        self.every_seconds: float = every_seconds
        self._samples: deque[dict[str, Any]] = deque(maxlen=MAX_KEPT)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)
        self.latest: Status | None = None

    def start(self) -> None:
        """Start polling."""
        self._thread.start()

    def close(self) -> None:
        """Stop polling, without waiting for a poll in progress."""
        self._over.set()

    def since(self, at: float) -> list[dict[str, Any]]:
        """Return the samples taken after ``at``, in seconds since 1970."""
        return [sample for sample in list(self._samples) if sample["at"] > at]

    def _run(self) -> None:
        while not self._over.is_set():
            seen = self._poll()
            self._samples.append(sample_of(seen))
            self.latest = seen
            self._over.wait(self.every_seconds)


def sample_of(seen: Status) -> dict[str, Any]:
    """Return the sample of a state, with null for unknown values, which leave gaps in the plot."""
    rows = seen.keys.queries if seen.keys is not None and not seen.keys.problem else {}
    return {
        "at": seen.at,
        "under_way": {name: row.queued + row.running + row.retrying for name, row in rows.items()},
        "stale_for": {name: row.oldest_stale or 0.0 for name, row in rows.items() if row.headers},
        "lead": {name: row.lead for name, row in rows.items() if row.lead is not None},
        "feed": {}
        if seen.feed is None
        else {"oldest change": seen.feed.oldest, "median": seen.feed.p50, "99th percentile": seen.feed.p99},
        "totals": {
            "background refreshes": seen.queues.refresh if seen.queues is not None else None,
            "blocking refreshes": seen.queues.miss if seen.queues is not None else None,
            "dead keys": sum(seen.dead.open.values()) if seen.dead is not None else None,
        },
    }
