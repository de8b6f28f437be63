"""The metrics of a worker, by the names that all who count give them: one table for Prometheus and OpenTelemetry."""

from __future__ import annotations

from typing import Final

SECONDS_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 150, 300)
HELD: Final = frozenset({"running", "retrying"})
"""The states of a lease record by which another run held what a message asked for."""

# Counters, each with a label ``query`` and these; the names end with _total where they are shown.
COUNTERS: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "xfetch_refresh_completed": ((), "Values stored"),
    "xfetch_refresh_failed": (("kind",), "Refreshes that were given up"),
    "xfetch_refresh_retried": (("kind",), "Failed attempts that were to be repeated"),
    "xfetch_refresh_skipped": (
        ("why",),
        "Messages with nothing to do: already_fresh, the state that held the key, or no_slot",
    ),
    "xfetch_stale_write_rejected": (("why",), "Writes that were refused: superseded, invalidated, lost"),
    "xfetch_lock_contention": ((), "Messages that found another run at their key"),
}
DROPPED: Final = ("refresher_messages_dropped", "Messages that were none, by what was wrong")
# Histograms over SECONDS_BUCKETS.
DURATIONS: Final = {
    "xfetch_refresh_duration_seconds": "From the lease to the commit",
    "xfetch_refresh_lead_seconds": "From the claim to the commit (δ)",
}
ACTIVE: Final = {
    "xfetch_active_refreshes": "Runs that go on",
    "xfetch_active_locks": "Leases that are held",
}
