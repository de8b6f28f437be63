"""A read that waits, as both readers see it. No I/O in here."""

from __future__ import annotations

from typing import Any

from api_client.errors import WaitTimeout
from api_client.protocol.clock import monotonic_seconds
from api_client.protocol.entry import is_handoff
from api_client.protocol.keys import CacheKey
from api_client.protocol.model import Answer, EntryState, RefreshState
from api_client.read.core import ReadCore
from api_client.read.evaluate import Freshness


class PendingRead:
    """One read that found nothing good enough: what it may share with others, and for how long it waits.

    Args:
        seen_token: the token of the entry that was not good enough; 0: there was none.
    """

    def __init__(
        self, core: ReadCore, key: CacheKey, floor: Freshness, seen_token: int, timeout_seconds: float
    ) -> None:
        self._core = core
        self.key: CacheKey = key
        self.floor: Freshness = floor
        self.seen_token: int = seen_token
        self._timeout_seconds, self._began = timeout_seconds, monotonic_seconds()
        self._followed = False
        core.record_miss(key)

    @property
    def may_share(self) -> bool:
        """Whether the wait of another caller serves as well."""
        return self.floor.is_plain and not self.seen_token

    @property
    def left_seconds(self) -> float:
        """How much of the caller's time is left."""
        return max(0.0, self._timeout_seconds - (monotonic_seconds() - self._began))

    def takes(self, raw: bytes, *, followed: bool) -> bool:
        """Tell whether this call may have what a shared wait has brought."""
        # A handoff was loaded for those who had asked before the load began; a follower came later.
        self._followed = followed and not is_handoff(raw)
        return self._followed or not followed

    def timed_out(self) -> WaitTimeout:
        """Return the error for a follower whose own time ran out first."""
        return WaitTimeout(self.key.query, self._timeout_seconds, "waiting with others")

    def answer(self, raw: bytes, type_: Any) -> Answer:
        """Answer from the bytes that the wait has brought.

        Raises:
            DecodeError.
        """
        self._core.forget(self.key)
        if self._followed:
            self._core.record_single_flight_hit(self.key, monotonic_seconds() - self._began)
        value, header = self._core.taken(self.key, raw, type_)
        # What an invalidation met while it was loaded is stale already, and may be older than this read.
        state = EntryState.STALE if header.generation > header.token else EntryState.MISS
        return value, header, state, RefreshState.TRIGGERED, self._core.now_us()
