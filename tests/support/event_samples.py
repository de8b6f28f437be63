"""A call of each event of readers and workers, by the event's name: for tests of what back ends make of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from api_client import ReaderEvents, ReadFailure, RefreshReason
from refresher import WorkerEvents

READER_EVENTS: Final[dict[str, Callable[[ReaderEvents], None]]] = {
    "hit": lambda e: e.hit("q", age_seconds=7.5, ttl_remaining_seconds=-2.0, triggered=True),
    "miss": lambda e: e.miss("q"),
    "single_flight_hit": lambda e: e.single_flight_hit("q", waited_seconds=1.0),
    "unreadable_entry": lambda e: e.unreadable_entry("q", reason="digest"),
    "refresh_triggered": lambda e: e.refresh_triggered("q", reason=RefreshReason.EARLY),
    "refresh_republished": lambda e: e.refresh_republished("q"),
    "refresh_deduplicated": lambda e: e.refresh_deduplicated("q", state="running"),
    "refresh_dropped": lambda e: e.refresh_dropped("q", why="backlog"),
    "trigger_failed": lambda e: e.trigger_failed("q", why="OSError"),
    "unavailable": lambda e: e.unavailable("q"),
    "read_failed": lambda e: e.read_failed("q", why=ReadFailure.TIMEOUT),
    "tags_invalidated": lambda e: e.tags_invalidated(hard=True, entries=3, seconds=0.02),
}
WORKER_EVENTS: Final[dict[str, Callable[[WorkerEvents], None]]] = {
    "acquired": lambda e: e.acquired("q"),
    "load_begun": lambda e: e.load_begun("q", keys=3),
    "committed": lambda e: e.committed("q", delta_seconds=1.5, run_seconds=0.2, as_stale=False),
    "found_unchanged": lambda e: e.found_unchanged("q"),
    "rejected": lambda e: e.rejected("q", why="lost"),
    "skipped": lambda e: e.skipped("q", why="running"),
    "waited_for_budget": lambda e: e.waited_for_budget("q", seconds=0.5),
    "retried": lambda e: e.retried("q", kind="timeout", attempt=1, pause_seconds=1.0),
    "failed": lambda e: e.failed("q", kind="syntax", attempts=1),
    "ended": lambda e: e.ended("q"),
    "message_dropped": lambda e: e.message_dropped(reason="body"),
    "changes_invalidated": lambda e: e.changes_invalidated(transactions=2, tags=3, bulk=1),
    "was_stale": lambda e: e.was_stale("q", until="stored", seconds=0.05),
}
