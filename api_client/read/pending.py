"""Pending reads, which no entry has satisfied yet. Shared by both readers; no I/O."""

from __future__ import annotations

from typing import Any

from api_client.errors import WaitTimeout
from api_client.protocol.clock import monotonic_seconds
from api_client.protocol.entry import is_handoff
from api_client.protocol.keys import CacheKey
from api_client.protocol.model import EntryState, ReadResult, RefreshState
from api_client.read.core import ReadCore
from api_client.read.evaluate import ANY, Freshness
from api_client.read.wait import Wait


class PendingRead:
    """One read that has to wait: its wait, its timeout, and the sharing of other reads' waits.

    Args:
        seen_token: the token of the entry that did not satisfy it; 0 if there was none.

    Raises:
        RefreshFailed: the read is part of a load that would wait for itself.
    """

    def __init__(
        self, core: ReadCore, key: CacheKey, freshness: Freshness, seen_token: int, timeout_seconds: float
    ) -> None:
        self._core = core
        self.key: CacheKey = key
        self._freshness, self._seen_token = freshness, seen_token
        self._timeout_seconds, self._began = timeout_seconds, monotonic_seconds()
        self._was_shared = False
        core.record_miss(key)
        core.check_in_place(key)

    @property
    def may_share(self) -> bool:
        """True if another caller's wait serves this read as well."""
        return self._freshness == ANY and not self._seen_token

    @property
    def left_seconds(self) -> float:
        """The rest of the caller's timeout."""
        return max(0.0, self._timeout_seconds - (monotonic_seconds() - self._began))

    def begin_wait(self, timeout_seconds: float | None = None) -> Wait:
        """Begin a wait for an entry that satisfies the read, by default with the rest of the caller's timeout."""
        timeout_seconds = self.left_seconds if timeout_seconds is None else timeout_seconds
        return self._core.begin_wait(self.key, self._freshness, self._seen_token, timeout_seconds)

    def accepted(self, shared: tuple[bytes, bool] | None) -> bytes | None:
        """Return the bytes of a shared wait if this read may have them; None if it has to wait by itself.

        Raises:
            WaitTimeout: the caller's time ran out first (``shared`` is None).
        """
        if shared is None:
            raise WaitTimeout(self.key.query, self._timeout_seconds, "waiting with others")
        raw, is_follower = shared
        # A handoff was loaded for reads that waited before the load began, and a follower came later.
        self._was_shared = is_follower and not is_handoff(raw)
        return raw if self._was_shared or not is_follower else None

    def result(self, raw: bytes, type_: Any) -> ReadResult:
        """Return the result for the bytes that the wait returned.

        Raises:
            DecodeError.
        """
        self._core.forget(self.key)
        if self._was_shared:
            self._core.record_single_flight_hit(self.key, monotonic_seconds() - self._began)
        value, header = self._core.decode_awaited(self.key, raw, type_)
        # A value that was invalidated during its load is already stale, and may be older than this read.
        state = EntryState.STALE if header.generation > header.token else EntryState.MISS
        return ReadResult(value, header, state, RefreshState.TRIGGERED, self._core.now_us())
