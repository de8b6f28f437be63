"""Manual refreshes: claim and trigger of a refresh that a caller requests."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Final

from api_client.config.settings import ReaderSettings
from api_client.errors import TriggerFailed
from api_client.protocol import lease
from api_client.protocol.keys import CacheKey
from api_client.protocol.lease import Call, ClaimReply, ClaimStatus
from api_client.protocol.messages import RefreshReason
from api_client.protocol.model import RefreshState
from api_client.trigger.backlog import Trigger
from api_client.trigger.broker import publication_fault

PUBLISH_BOUND_SECONDS: Final = 3.0


class ManualRefresh:
    """One refresh that a caller requests, whatever the state of its key. No I/O.

    Args:
        key: the key to refresh.
        settings: the reader's settings.
        has_waiter: True if the caller waits for the value, for ``timeout_seconds``.

    Attributes:
        claim: the forced claim, to be run first.
        state: TRIGGERED, or SUPPRESSED if a refresh was in progress. Set by `on_reply`.
    """

    def __init__(
        self, key: CacheKey, settings: ReaderSettings, *, has_waiter: bool, timeout_seconds: float = 0.0
    ) -> None:
        self.key: CacheKey = key
        self.has_waiter: bool = has_waiter
        self.timeout_seconds: float = timeout_seconds
        self._settings, self._claim_id = settings, uuid.uuid4().hex
        self.state: RefreshState = RefreshState.NONE
        self.claim: Call[ClaimReply] = lease.claim(
            key,
            claim_id=self._claim_id,
            seen_token=None,
            force=True,
            queue_ttl_seconds=settings.queue_ttl_seconds,
            retention_seconds=settings.record_retention_seconds,
        )

    def on_reply(self, reply: ClaimReply, done: Callable[[Exception | None], object]) -> Trigger | None:
        """Return the trigger to submit, which calls ``done``; None if the claim was refused."""
        if reply.status is not ClaimStatus.CLAIMED:
            self.state = RefreshState.SUPPRESSED
            return None
        self.state = RefreshState.TRIGGERED
        return Trigger(
            self.key,
            RefreshReason.MANUAL,
            claim_number=reply.number,
            claim_id=self._claim_id,
            has_waiter=self.has_waiter,
            done=done,
        )

    def failed(self, error: Exception) -> TriggerFailed:
        """Return the error for a refresh that could not be published."""
        query = self.key.query
        # The TimeoutError of the caller's own wait has no text.
        why = (
            publication_fault(error, self._settings) if str(error) else f"no outcome within {PUBLISH_BOUND_SECONDS:g} s"
        )
        return TriggerFailed(f"the refresh of {query!r} could not be published: {why}", query=query)
