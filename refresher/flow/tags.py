"""Tags of a refresh: what its value depends on, registered between load and commit.

Where the load may have missed an invalidation of a tag, the run's own key is invalidated, and the commit meets that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Final

from api_client.errors import CacheUnavailable
from api_client.protocol import lease, tags
from api_client.protocol.lease import MAX_BOOKMARKS_BYTES, Call
from api_client.protocol.tags import TagReply
from api_client.transport.scripts import LeaseStepRunner
from refresher.errors import LoadFailed, text_of
from refresher.flow.run import Run, bookmarks_of, hard_ttl_seconds, newest
from refresher.queries import Query
from refresher.settings import WorkerSettings

MARGIN_SECONDS: Final = 60.0


def tags_of(query: Query, value: Any, params: dict[str, Any]) -> tuple[str, ...]:
    """Return what a value depends on; nothing where it is never cached.

    Raises:
        LoadFailed: the query's function raised, or returned no tags.
    """
    if query.tags is None or not query.has_tags:
        return ()
    if isinstance(query.tags, tuple):
        return query.tags
    try:
        return tags.check_tags(query.tags(value, **params))
    except Exception as error:
        raise LoadFailed("tags", f"tags= of {query.name!r}: {text_of(error)}", is_transient=False) from error


def register_tags(
    steps: LeaseStepRunner, settings: WorkerSettings, loaded: Iterable[tuple[Run, Sequence[str]]]
) -> dict[bytes, CacheUnavailable]:
    """Register loaded runs with their tags, in one round trip, and invalidate those that an invalidation has overtaken.

    Returns which may not be committed, by nonce: Redis did not answer.
    """
    pairs = [(run, tag) for run, names in loaded for tag in names]
    replies: dict[bytes, list[TagReply]] = {}
    runs, failed = {run.nonce: run for run, _ in pairs}, dict[bytes, CacheUnavailable]()
    for (run, _), reply in zip(pairs, steps.run_each([_register_call(*pair, settings) for pair in pairs]), strict=True):
        if isinstance(reply, CacheUnavailable):
            failed[run.nonce] = reply
        else:
            replies.setdefault(run.nonce, []).append(reply)
    overtaken = {
        nonce: call
        for nonce, found in replies.items()
        if nonce not in failed and (call := _invalidate_call(runs[nonce], found, settings)) is not None
    }
    if overtaken:
        # The clock may be behind, where Redis has lost it: then no load would read what the tags were marked with.
        last = max(reply.last for found in replies.values() for reply in found)
        calls: list[Call[int]] = [*overtaken.values(), tags.tick(settings.namespace, at_least=last)]
        for nonce, result in zip(overtaken, steps.run_each(calls), strict=False):
            if isinstance(result, CacheUnavailable):
                failed[nonce] = result
    return failed


def _register_call(run: Run, tag: str, settings: WorkerSettings) -> Call[TagReply]:
    # The one query of all of them: it was found when it was loaded.
    assert run.query is not None  # noqa: S101 - for the type checker
    late_seconds = settings.lease_limit_seconds + settings.record_retention_seconds + MARGIN_SECONDS
    return tags.register(run.key, tag, lives_seconds=hard_ttl_seconds(run.query) + late_seconds)


def _invalidate_call(run: Run, replies: Sequence[TagReply], settings: WorkerSettings) -> Call[int] | None:
    """Return the call that invalidates the run's own key; None where its load has missed nothing."""
    bookmarks = newest(
        tuple(dict.fromkeys(chain.from_iterable(reply.bookmarks for reply in replies))), MAX_BOOKMARKS_BYTES
    )
    missed = (
        max(reply.last for reply in replies) > run.tag_clock
        or not set(bookmarks) <= set(bookmarks_of(run, settings))
        or max(reply.now_us for reply in replies) - run.lease.now_us > tags.MAX_RUN_SECONDS * 1e6
    )
    if not missed:
        return None
    return lease.invalidate(
        run.key,
        hard=max(reply.hard for reply in replies) > run.tag_clock,
        bookmarks=bookmarks,
        retention_seconds=settings.record_retention_seconds,
    )
