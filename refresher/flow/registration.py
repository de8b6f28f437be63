"""Tags in a run: the read of their state before the load, and the registration before the commit.

An invalidation finds registered entries. If the load may have missed one, the run invalidates its own key, and the
commit is judged by that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from api_client.errors import CacheUnavailable
from api_client.protocol import lease, live_versions, tags
from api_client.protocol.entry import UnreadableEntry
from api_client.protocol.lease import MAX_BOOKMARKS_BYTES, Call
from api_client.protocol.tags import TagReply
from api_client.transport.scripts import LeaseStepRunner, at_once
from refresher.flow.entries import HANDOFF_SECONDS
from refresher.flow.run import MAX_BOOKMARKS_KEPT, LoadedEntry, Run, bookmarks_of, newest, recent_bookmarks
from refresher.settings import WorkerSettings

MARGIN_SECONDS: Final = 60.0


def register(
    steps: LeaseStepRunner, settings: WorkerSettings, loaded: Iterable[tuple[Run, LoadedEntry]]
) -> dict[bytes, CacheUnavailable]:
    """Register entries before their commit, so that an invalidation finds them, in at most one round trip.

    That means each tag of an entry, and its version if the entry lives longer than the query's TTL. A run that a tag's
    invalidation has overtaken is then invalidated.

    Returns the runs that may not be committed, by nonce, because Redis did not answer, or not with the tag clock before
    the load.
    """
    calls: list[tuple[Run, Call[Any]]] = [
        (run, call) for run, entry in loaded for call in _register_calls(run, entry, settings)
    ]
    failed: dict[bytes, CacheUnavailable] = {}
    found: dict[bytes, list[TagReply]] = {}
    runs = {run.nonce: run for run, _ in calls}
    replies = steps.run_each([call for _, call in calls]) if calls else []
    for (run, _), reply in zip(calls, replies, strict=True):
        if isinstance(reply, CacheUnavailable):
            failed[run.nonce] = reply
        elif isinstance(reply, TagReply) and reply.last and isinstance(run.tag_clock, CacheUnavailable):
            # Its load may or may not predate that invalidation, so invalidating the key could delete a good entry.
            failed[run.nonce] = run.tag_clock
        elif isinstance(reply, TagReply):
            found.setdefault(run.nonce, []).append(reply)
    overtaken = {
        nonce: call
        for nonce, of_run in found.items()
        if nonce not in failed and (call := _invalidate_call(runs[nonce], of_run, settings)) is not None
    }
    if overtaken:
        # The clock may be behind after Redis has lost it; then no load would read a number as large as the tags' marks.
        last = max(reply.last for of_run in found.values() for reply in of_run)
        invalidate = [*overtaken.values(), tags.tick(settings.namespace, at_least=last)]
        results = zip(overtaken, steps.run_each(invalidate), strict=False)
        failed |= {nonce: result for nonce, result in results if isinstance(result, CacheUnavailable)}
    return failed


def with_tags(steps: LeaseStepRunner, settings: WorkerSettings, runs: Sequence[Run]) -> Sequence[Run]:
    """Return runs of one query with the tag clock, and with the bookmarks that their entries' tags remember.

    The bookmarks are read if the entries have not kept all. One round trip, or none for a query without tags. It does
    not wait for a node that is down: without the clock a run is committed only if its tags remember no invalidation,
    and without bookmarks the load may have to be repeated.
    """
    query = runs[0].query
    if query is None or not query.has_tags:
        return runs
    registers = [
        (run, tags.register(run.key, tag, lives_seconds=_late_seconds(settings)))
        for run in runs
        if len(recent_bookmarks(run, settings)) >= MAX_BOOKMARKS_KEPT
        for tag in _tags_before(run)
    ]
    calls: list[Call[Any]] = [tags.read_clock(settings.namespace), *(call for _, call in registers)]
    clock, *replies = steps.run_each(calls, until=at_once)
    found: dict[bytes, list[TagReply]] = {}
    for (run, _), reply in zip(registers, replies, strict=True):
        if isinstance(reply, TagReply):
            found.setdefault(run.nonce, []).append(reply)
    return [replace(run, tag_clock=clock, tag_bookmarks=_bookmarks_of(found.get(run.nonce, ()))) for run in runs]


def _tags_before(run: Run) -> tuple[str, ...]:
    try:
        return run.before.tags if run.before else ()
    except UnreadableEntry:
        return ()


def _bookmarks_of(replies: Sequence[TagReply]) -> tuple[str, ...]:
    every = dict.fromkeys(chain.from_iterable(reply.bookmarks for reply in replies))
    return newest(tuple(every), MAX_BOOKMARKS_BYTES)


def _late_seconds(settings: WorkerSettings) -> float:
    """Return how long after its start a run may still commit and its entry has to be found."""
    return settings.lease_limit_seconds + settings.record_retention_seconds + MARGIN_SECONDS


def _register_calls(run: Run, entry: LoadedEntry, settings: WorkerSettings) -> Iterator[Call[Any]]:
    # All runs are of this query, which was found before the load.
    assert run.query is not None  # noqa: S101 - for the type checker
    lives_seconds = entry.hard_ttl_seconds + _late_seconds(settings)
    if entry.hard_ttl_seconds > run.query.ttl_seconds + run.query.grace_seconds + HANDOFF_SECONDS:
        query = run.query
        yield live_versions.register(settings.namespace, query.name, query.version, lives_seconds=lives_seconds)
    for tag in entry.tags:
        yield tags.register(run.key, tag, lives_seconds=lives_seconds)


def _invalidate_call(run: Run, replies: Sequence[TagReply], settings: WorkerSettings) -> Call[int] | None:
    """Return the call that invalidates the run's own key, or None if its load has missed nothing."""
    bookmarks = _bookmarks_of(replies)
    tag_clock = 0 if isinstance(run.tag_clock, CacheUnavailable) else run.tag_clock  # without it none was invalidated
    missed = (
        max(reply.last for reply in replies) > tag_clock
        or not set(bookmarks) <= set(bookmarks_of(run, settings))
        or max(reply.now_us for reply in replies) - run.lease.now_us > tags.MAX_RUN_SECONDS * 1e6
    )
    if not missed:
        return None
    return lease.invalidate(
        run.key,
        hard=max(reply.hard for reply in replies) > tag_clock,
        bookmarks=bookmarks,
        retention_seconds=settings.record_retention_seconds,
    )
