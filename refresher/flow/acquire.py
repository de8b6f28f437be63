"""Acquire: the leases of a message's items, each with its own run."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from api_client.errors import CacheUnavailable, InvalidQuery
from api_client.protocol import lease
from api_client.protocol.keys import CacheKey
from api_client.protocol.lease import AcquireReply, AcquireStatus, Call
from api_client.protocol.messages import RefreshItem
from refresher.errors import LoadFailed
from refresher.flow.follow_up import hand_back
from refresher.flow.outcome import Ended, Outcome, OutcomeKind
from refresher.flow.ports import RefreshDeps
from refresher.flow.run import Run, learned_lease_seconds
from refresher.queries import Query
from refresher.settings import WorkerSettings

log: Final = logging.getLogger(__name__)

_MALFORMED: Final = Outcome(OutcomeKind.SKIPPED, "?", why="malformed")


@dataclass(frozen=True, slots=True)
class _Request:
    """One item's step, which may be repeated, since its nonce stays the same."""

    item: RefreshItem
    key: CacheKey
    nonce: bytes
    call: Call[AcquireReply]


def acquire(
    deps: RefreshDeps, settings: WorkerSettings, query: Query | None, items: Sequence[RefreshItem], owner: str | None
) -> Sequence[Run | Ended]:
    """Acquire the items' leases; return the run of each item to load, and the end of each other item.

    If the worker, or the task around the flow, ends during this, granted leases are handed back.
    """
    keys = {place: key for place, item in enumerate(items) if (key := _key_of(item, settings.namespace))}
    if not keys:
        return [_MALFORMED] * len(items)
    if query is not None:
        deps.register(query)
    requests = [_request(deps, settings, items[place], key, owner) for place, key in keys.items()]
    try:
        begun = _begin(deps, query, requests)
    except BaseException as error:
        if deps.hands_back(error):
            # Redis may or may not have run the steps; repeated, they return the same runs.
            runs = [one for one in _begin(deps, query, requests, reports=False) if isinstance(one, Run)]
            for run in runs:
                report_takeover(deps, run)
            hand_back(deps, settings, runs)
        raise
    by_place = dict(zip(keys, begun, strict=True))
    return [by_place.get(place, _MALFORMED) for place in range(len(items))]


def report_takeover(deps: RefreshDeps, run: Run) -> None:
    """Report the attempt of a process that can't report it itself, because it has ended, or is stalled and fenced."""
    if run.lease.has_overtaken:
        lost, attempt = taken_over(), max(run.lease.attempts, 1)
        deps.events.retried(run.key.query, kind=lost.kind, attempt=attempt, pause_seconds=0.0)
        log.warning("attempt %d of %s failed (%s); retrying now", attempt, run.name, lost.shown)


def taken_over() -> LoadFailed:
    """Return the failure of a run whose lease expired."""
    return LoadFailed(
        "taken_over", "its lease expired: the process that loaded it has ended, or was stopped", is_transient=True
    )


def _request(
    deps: RefreshDeps, settings: WorkerSettings, item: RefreshItem, key: CacheKey, owner: str | None
) -> _Request:
    nonce = os.urandom(8)
    call = lease.acquire(
        key,
        nonce=nonce,
        claim_number=item.claim_number,
        ticket=item.ticket,
        # The entry's statistics come with the reply.
        lease_seconds=learned_lease_seconds(None, settings, deps.uniform()),
        limit_seconds=settings.lease_limit_seconds,
        retention_seconds=settings.record_retention_seconds,
        by=owner,
        in_place=deps.is_in_place,
    )
    return _Request(item, key, nonce, call)


def _begin(
    deps: RefreshDeps, query: Query | None, requests: Sequence[_Request], *, reports: bool = True
) -> list[Run | Ended]:
    asked_at = deps.monotonic()
    # Nobody renews these leases before this returns, so a node that is down may not hold up the others. A late acquire
    # on that node leaves a lease without an owner, which expires.
    replies = deps.lease_steps.run_each([request.call for request in requests], until=any)
    waited_seconds = deps.monotonic() - asked_at
    begun: list[Run | Ended] = []
    for request, reply in zip(requests, replies, strict=True):
        if isinstance(reply, CacheUnavailable):
            begun.append(reply)
        elif reply.status is AcquireStatus.ACQUIRED:
            attempt = max(request.item.attempt, reply.attempts + 1)
            item = msgspec.structs.replace(request.item, attempt=attempt, passes=0)
            held = replace(reply, left_seconds=reply.left_seconds - waited_seconds)
            begun.append(Run(item, request.key, query, request.nonce, held, deps.monotonic(), deps.monotonic))
        else:
            is_fresh = reply.status is AcquireStatus.ALREADY_FRESH
            why = "already_fresh" if is_fresh else reply.state.value
            if reports:
                deps.events.skipped(request.key.query, why=why)
            begun.append(Outcome(OutcomeKind.SKIPPED, request.key.query, request.key.short, why=why))
    return begun


def _key_of(item: RefreshItem, namespace: str) -> CacheKey | None:
    try:
        return item.key(namespace)
    except InvalidQuery as error:
        # The error's text may contain a param's value.
        log.warning("invalid refresh request for %.100r: %s", item.query, type(error).__name__)
        return None
