"""Claims made by a worker: one more refresh after an invalidation, and its own run at shutdown.

A claim that can't be published is taken back, so that the next reader may claim at once.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from typing import Final

import msgspec

from api_client.protocol import lease
from api_client.protocol.lease import Call, ClaimStatus
from api_client.protocol.messages import RefreshItem, RefreshReason, item_for
from api_client.transport.scripts import none_failed
from refresher.flow.ports import RefreshDeps
from refresher.flow.run import Run
from refresher.settings import WorkerSettings

log: Final = logging.getLogger(__name__)


def request_follow_up(deps: RefreshDeps, settings: WorkerSettings, run: Run, *, stored: bool) -> None:
    """Request one more refresh, because an invalidation came during this one; the worker claims as a reader does.

    Raises:
        CacheUnavailable: Redis did not answer.
    """
    claim_id = uuid.uuid4().hex
    reply = deps.lease_steps.run(
        lease.claim(
            run.key,
            claim_id=claim_id,
            # A hard invalidation dropped the entry, so an existing one was loaded after it and needs no refresh.
            seen_token=run.token if stored else 0,
            queue_ttl_seconds=settings.queue_ttl_seconds,
            retention_seconds=settings.record_retention_seconds,
        )
    )
    if reply.status is ClaimStatus.CLAIMED:
        item = item_for(run.key, reply.number, RefreshReason.INVALIDATED, run.item.trace)
        _publish_or_unclaim(deps, settings, run, item, claim_id)


def hand_back(deps: RefreshDeps, settings: WorkerSettings, runs: Sequence[Run]) -> None:
    """Put runs back into the queue because this worker ends; no error keeps it from ending."""
    try:
        # All steps before the first publication, since a pool kills the process half a second after its first signal.
        replies = deps.lease_steps.run_each([hand_back_call(run, settings) for run in runs])
    except Exception as error:  # noqa: BLE001 - whatever it is, the worker ends, and the leases run out
        log.warning("could not hand back %d refreshes: %s", len(runs), type(error).__name__)
        return
    for run, reply in zip(runs, replies, strict=True):
        try:
            (claim_number,) = none_failed([reply])
            if claim_number:
                item = msgspec.structs.replace(run.item, ticket="", claim_number=claim_number)
                _publish_or_unclaim(deps, settings, run, item, run.nonce)
        except Exception as error:  # noqa: BLE001 - as above; or the claim runs out
            log.warning("could not hand back %s: %s", run.name, type(error).__name__)


def hand_back_call(run: Run, settings: WorkerSettings) -> Call[int]:
    """Return the step that turns a run back into a claim: it counts no attempt, and any message for it may load."""
    return lease.hand_back(run.key, queue_ttl_seconds=settings.queue_ttl_seconds, **run.own_lease(settings))


def _publish_or_unclaim(
    deps: RefreshDeps, settings: WorkerSettings, run: Run, item: RefreshItem, claim_id: str | bytes
) -> None:
    try:
        deps.publish(item)
    except Exception as error:  # noqa: BLE001 - whatever the broker raises, the next reader claims
        log.warning("could not publish a refresh of %s: %s", run.name, type(error).__name__)
        retention_seconds = settings.record_retention_seconds
        deps.lease_steps.run(lease.unclaim(run.key, claim_id=claim_id, retention_seconds=retention_seconds))
