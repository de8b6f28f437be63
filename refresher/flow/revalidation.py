"""Revalidation: the data of the present entry for loads that may find the value unchanged."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from api_client.errors import CacheUnavailable, DecodeError
from api_client.protocol import lease, payload
from api_client.protocol.entry import Header, UnreadableEntry
from api_client.transport.scripts import LeaseStepRunner, at_once
from refresher.flow.run import Run
from refresher.queries import AUTO
from refresher.results import Previous


def previous_of(
    runs: Sequence[Run], steps: LeaseStepRunner, max_bytes: int, untagged: Collection[str]
) -> list[Previous | None]:
    """Return the previous value's data for the load of each run, or None without a readable entry.

    A conditional query's loader also gets the value, which takes a round trip; other loaders have no use for it.

    An entry without tags may be older than its query's tags by plans, which only a full load finds. So it does not
    count, except for queries in ``untagged``, whose loads found no tags.
    """
    query = runs[0].query
    needs_tags = query is not None and query.tags == AUTO and query.name not in untagged
    there = [
        (run, run.before) for run in runs
        if run.before is not None and not run.before.is_handoff and (run.before.encoded_tags or not needs_tags)
    ]  # fmt: skip
    if query is None or not query.revalidates or not there:
        return [None] * len(runs)
    if query.conditional:
        reads = [lease.read_payload(run.key, nonce=before.nonce) for run, before in there]
        contents = steps.run_each(reads, until=at_once)  # without the content the value is loaded in full
        found = {
            run.nonce: _with_value(query.name, before, content, max_bytes)
            for (run, before), content in zip(there, contents, strict=True)
        }
    else:
        found = {run.nonce: _previous(before, None) for run, before in there}
    return [found.get(run.nonce) for run in runs]


def _with_value(query: str, before: Header, content: bytes | CacheUnavailable, max_bytes: int) -> Previous | None:
    if isinstance(content, CacheUnavailable) or not content:
        return None
    try:
        plain = payload.content_of(content, msgspec.structs.replace(before, length=0), query, max_bytes)
        return _previous(before, payload.decode(plain, Any, query))
    except DecodeError:
        return None


def _previous(before: Header, value: Any) -> Previous | None:
    try:
        version, _ = before.revalidation.version, before.tags
        return Previous(value, datetime.fromtimestamp(before.fetched_at_us / 1e6, UTC), version)
    except (UnreadableEntry, ValueError, OverflowError, OSError):  # the others: a time outside of the calendar
        return None
