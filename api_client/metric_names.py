"""The metrics of a reader, by the names that all who count give them: one table for Prometheus and OpenTelemetry."""

from __future__ import annotations

from typing import Final

AGE_BUCKETS_SECONDS: Final = (0.1, 0.5, 1, 5, 15, 30, 60, 150, 300, 600, 1_800, 3_600, 14_400, 86_400)

# Counters; the names end with _total where they are shown.
COUNTERS: Final = {
    "cache_hit": "Values served from the cache, fresh or stale",
    "cache_miss": "Reads that found nothing good enough, and waited",
    "cache_unavailable": "Reads that found Redis unavailable",
    "cache_expired_served": "Values served past their soft expiry",
    "xfetch_stale_served": "Values served on a positive decision, early or past the soft expiry",
    "xfetch_single_flight_hits": "Callers that were served by a wait which another caller had begun",
    "xfetch_lock_contention": "Claims that were refused, since somebody else's stood",
    "xfetch_refresh_republished": "Queued refreshes that were published once more",
}
# As well, with a label more.
LABELLED: Final = {
    "xfetch_refresh_triggered": ("reason", "Refreshes asked for: early, stale, miss, invalidated, manual"),
    "xfetch_refresh_dropped": ("why", "Triggers that were not published: backlog, backpressure, breaker, repeat"),
    "xfetch_trigger_failed": ("why", "Claims that could not be made or published"),
    "cache_read_failed": (
        "why",
        "Reads that ended without a value: unavailable, timeout, refresh_failed, unknown_query, decode",
    ),
    "cache_unreadable": ("reason", "Entries treated as a miss: garbage, version, flags, digest"),
}
# Histograms over AGE_BUCKETS_SECONDS.
AGES: Final = {
    "cache_age_at_access_seconds": "Age of the values served, from their read on",
    "cache_ttl_remaining_seconds": "Time to the soft expiry of the values served; 0 past it",
    "cache_stale_seconds": "For how long the values served past their soft expiry had been stale",
}
