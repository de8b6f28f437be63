"""Loads that may find the value unchanged: what they are given of the entry that is there."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from api_client.errors import CacheUnavailable, DecodeError
from api_client.protocol import lease, payload
from api_client.protocol.entry import UnreadableEntry
from api_client.transport.scripts import LeaseStepRunner
from refresher.flow.run import Run
from refresher.results import Previous


def previous_of(runs: Sequence[Run], steps: LeaseStepRunner, max_bytes: int) -> list[Previous | None]:
    """Return what the load of each run is given of its entry; None: there is none, or nothing that can be read.

    A conditional query's loader gets the value, too, which takes a round trip; the others' have no use for it.
    """
    query = runs[0].query
    if query is None or not query.revalidates:
        return [None] * len(runs)
    found = {run.nonce: run for run in runs if run.before is not None and not run.before.is_handoff}
    if not query.conditional:
        return [_previous(run, None) if run.nonce in found else None for run in runs]
    calls = [lease.read_payload(run.key, nonce=run.before.nonce) for run in found.values() if run.before is not None]
    contents = dict(zip(found, steps.run_each(calls) if calls else (), strict=True))
    return [_with_value(run, contents.get(run.nonce, b""), max_bytes) for run in runs]


def _with_value(run: Run, content: bytes | CacheUnavailable, max_bytes: int) -> Previous | None:
    if isinstance(content, CacheUnavailable) or not content or run.before is None:
        return None
    try:
        header = msgspec.structs.replace(run.before, length=0)
        plain = payload.content_of(content, header, run.key.query, max_bytes)
        return _previous(run, payload.decode(plain, Any, run.key.query))
    except DecodeError:
        return None


def _previous(run: Run, value: Any) -> Previous | None:
    before = run.before
    if before is None:
        return None
    try:
        version, _ = before.revalidation.version, before.tags
        return Previous(value, datetime.fromtimestamp(before.fetched_at_us / 1e6, UTC), version)
    except (UnreadableEntry, ValueError, OverflowError, OSError):  # the latter: a time of no calendar
        return None
