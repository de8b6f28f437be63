"""Renewal of this process's leases and shares, all in one pipelined call, after every third of their time."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from api_client.errors import CacheUnavailable
from api_client.protocol import lease
from api_client.protocol.budget import SHARE_SECONDS, Share
from api_client.protocol.clock import monotonic_seconds
from api_client.protocol.keys import CacheKey
from api_client.protocol.lease import Call

log: Final = logging.getLogger(__name__)

MIN_PERIOD_SECONDS: Final = 0.02
RETRY_SECONDS: Final = 0.5
"""Longest pause before a failed renewal is tried again."""

RunEach: TypeAlias = Callable[[Sequence[Call[float]]], Sequence[float | CacheUnavailable]]
"""Runs renewals together; a failed one does not end the others. It does not wait for a node that is down."""


class Renewable(Protocol):
    """A lease or share that this process holds for some time.

    ``granted_seconds`` is the time for which it was granted, ``lease_seconds`` the time that each renewal requests.
    ``lost`` is set once a renewal was refused.
    """

    granted_seconds: float
    lease_seconds: float
    lost: bool
    renew_at: float

    def renewal(self) -> Call[float]:
        """Return the call that renews it; its result is the seconds for which it holds, 0 if it is lost."""


@dataclass(eq=False, slots=True)
class HeldLease:
    """A lease, whose renewals request the time learned from the entry that acquire returned.

    If it is lost, the commit decides.
    """

    key: CacheKey
    token: int
    nonce: bytes
    granted_seconds: float
    lease_seconds: float
    lost: bool = False
    renew_at: float = 0.0

    def renewal(self) -> Call[float]:
        """Return the call that renews it."""
        return lease.renew(self.key, token=self.token, nonce=self.nonce, lease_seconds=self.lease_seconds)


@dataclass(eq=False, slots=True)
class HeldShare:
    """A share of the budgets. If it is lost, the load goes on uncounted."""

    share: Share
    granted_seconds: float = SHARE_SECONDS
    lease_seconds: float = SHARE_SECONDS
    lost: bool = False
    renew_at: float = 0.0

    def renewal(self) -> Call[float]:
        """Return the call that renews it."""
        return self.share.renew()


class Renewals:
    """Renews leases and shares on one thread per process, started for the first of them."""

    def __init__(self, run_each: RunEach, *, monotonic: Callable[[], float] = monotonic_seconds) -> None:
        self._run_each, self._monotonic = run_each, monotonic
        self._held: set[Renewable] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        # The time at which the thread wakes by itself. While it is not waiting, it looks at everything anyway.
        self._wakes_at = -math.inf
        self._closing = self._fails = False

    @contextmanager
    def holding(self, held: Sequence[Renewable]) -> Iterator[None]:
        """Renew each of ``held`` after every third of the time for which it holds, while the block runs."""
        with self._changed:
            for one in held:
                self._schedule(one, one.granted_seconds)
            self._held.update(held)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="lease-renewals", daemon=True)
                thread.start()
                self._thread = thread
            elif any(one.renew_at < self._wakes_at for one in held):
                # Not at every run, since most are short, and each wake-up costs two thread switches.
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._held.difference_update(held)

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(2.0)

    def _schedule(self, held: Renewable, holds_seconds: float) -> None:
        held.renew_at = self._monotonic() + max(holds_seconds / 3, MIN_PERIOD_SECONDS)

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._closing:
                    return
                now = self._monotonic()
                due = [held for held in self._held if not held.lost and held.renew_at <= now]
                if not due:
                    left_seconds = self._seconds_left(now)
                    self._wakes_at = math.inf if left_seconds is None else now + left_seconds
                    self._changed.wait(left_seconds)
                    continue
                for held in due:
                    self._schedule(held, held.lease_seconds)
            self._renew(due)

    def _seconds_left(self, now: float) -> float | None:
        """Return the time until the next renewal, or None while nothing is held."""
        return min((held.renew_at - now for held in self._held if not held.lost), default=None)

    def _renew(self, due: list[Renewable]) -> None:
        replies: Sequence[float | Exception]
        try:
            replies = self._run_each([held.renewal() for held in due])
        except Exception as error:  # noqa: BLE001 - without this thread every long load would lose its lease
            replies = [error] * len(due)
        for held, reply in zip(due, replies, strict=True):
            if isinstance(reply, Exception):
                held.renew_at = min(held.renew_at, self._monotonic() + RETRY_SECONDS)
            else:
                held.lost = reply <= 0
        self._log(replies)

    def _log(self, replies: Sequence[float | Exception]) -> None:
        failures = [reply for reply in replies if isinstance(reply, Exception)]
        if failures and not self._fails:
            log.warning(
                "could not renew %d of %d leases (%s: %s); retrying",
                len(failures), len(replies), type(failures[0]).__name__, failures[0],
            )  # fmt: skip
        self._fails = bool(failures)
