"""Synchronous read path: the in-process tier, then Redis, then a shared wait on the calling thread."""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Final

from api_client.errors import CacheError, CacheUnavailable
from api_client.protocol.clock import monotonic_seconds
from api_client.protocol.keys import CacheKey
from api_client.protocol.model import ReadResult
from api_client.read.batch import Batch
from api_client.read.coalescing import SingleFlight
from api_client.read.core import MustWait, ReadCore
from api_client.read.evaluate import Freshness
from api_client.read.pending import PendingRead
from api_client.read.wait import LoadInPlace, Pause, Wait, load_in_place
from api_client.threads import Waker
from api_client.transport.link import CacheLink
from api_client.transport.pubsub import Notifications

_OWN_PACKAGES: Final = frozenset(("api_client", "refresher", "contextlib"))


class SyncWaitRunner:
    """Runs waits, one or several together, on the calling thread."""

    def __init__(self, link: CacheLink, notifications: Notifications) -> None:
        self._link, self._notifications = link, notifications

    def run(self, wait: Wait, read_begins: Callable[[], None] = lambda: None) -> bytes:
        """Return the bytes of the awaited entry; call ``read_begins`` before each read.

        Raises:
            RefreshFailed, WaitTimeout, CacheUnavailable.
        """
        (raw,) = self.run_all([wait], read_begins)
        if isinstance(raw, CacheError):
            raise raw from raw.__cause__
        return raw

    def run_all(
        self, waits: Sequence[Wait], read_begins: Callable[[], None] = lambda: None
    ) -> list[bytes | CacheError]:
        """Run several waits; steps that are due together share a round trip. The errors are those of `run`."""
        _warn_of_blocked_loop()
        waker, notified = Waker(), set[str]()

        def waking(channel: str) -> Callable[[], None]:
            def wake() -> None:  # on the listening thread
                notified.add(channel)
                waker.wake()

            return wake

        listener = None
        try:
            listener = self._notifications.listen({wait.key.channel: waking(wait.key.channel) for wait in waits})
            while under_way := [wait for wait in waits if wait.result is None]:
                if busy := [wait for wait in under_way if not isinstance(wait.step, Pause)]:
                    self._run_steps(busy, read_begins)
                else:
                    _pause(under_way, waker, notified)
        finally:
            if listener is not None:
                listener.close()
        return [wait.result for wait in waits if wait.result is not None]

    def _run_steps(self, waits: Sequence[Wait], read_begins: Callable[[], None]) -> None:
        """Run the current steps of these waits in at most two round trips, then their loads in place."""
        calling = [wait for wait in waits if wait.call is not None]
        loading = [wait for wait in waits if isinstance(wait.step, LoadInPlace)]
        reading = [wait for wait in waits if wait.call is None and wait not in loading]
        if calling:
            calls = [wait.call for wait in calling if wait.call is not None]
            for wait, reply in zip(calling, self._link.run_each(calls, calling[0].key.query), strict=True):
                wait.advance(reply)
        if reading:
            read_begins()
            for wait, found in zip(reading, self._read([wait.key for wait in reading]), strict=True):
                wait.advance(found)
        load_in_place(loading)

    def _read(self, keys: Sequence[CacheKey]) -> list[tuple[bytes | None, int] | CacheUnavailable]:
        """Return each key's entry with the time of the read, or the failure in its place."""
        try:
            found = self._link.read_all(keys)
            now_us = self._link.now_us()
        except CacheUnavailable as error:
            return [error] * len(keys)
        return [raw if isinstance(raw, CacheUnavailable) else (raw, now_us) for raw in found]


def _pause(waits: Sequence[Wait], waker: Waker, notified: set[str]) -> None:
    """Pause until one of the waits is notified, or the first of their pauses is over."""
    waker.wait(min(wait.pauses_until for wait in waits) - monotonic_seconds())
    now = monotonic_seconds()
    for wait in waits:
        was_notified = wait.key.channel in notified
        if was_notified or now >= wait.pauses_until:
            notified.discard(wait.key.channel)
            wait.advance(was_notified)


def _warn_of_blocked_loop() -> None:
    """Warn, once per call site, that a wait within a task blocks the event loop of its thread."""
    try:
        if asyncio.current_task() is None:
            return  # a library runs its loop beside the caller, as Playwright's sync API does
    except RuntimeError:  # no loop is running
        return
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - as `warnings` finds its caller
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OWN_PACKAGES:
        frame = frame.f_back
    if frame is not None:
        warnings.warn_explicit(
            "this read waits for a refresh, and blocks the event loop of its thread meanwhile: await aget_cached, or a "
            "method of AsyncCacheClient, instead",
            RuntimeWarning,
            frame.f_code.co_filename,
            frame.f_lineno,
            frame.f_globals.get("__name__"),
            frame.f_globals.setdefault("__warningregistry__", {}),
        )


class ReadPath:
    """Reads entries on the calling thread. Thread-safe."""

    def __init__(self, core: ReadCore, link: CacheLink, runner: SyncWaitRunner) -> None:
        self._core, self._link, self._runner = core, link, runner
        self._flights = SingleFlight(monotonic_seconds)

    def read(self, key: CacheKey, freshness: Freshness, timeout_seconds: float, type_: Any) -> ReadResult:
        """Return the result at once if an entry satisfies the read, otherwise as soon as one does.

        Raises:
            RefreshFailed, WaitTimeout, CacheUnavailable, DecodeError.
        """
        try:
            if self._core.tier is not None and (local := self._core.serve_local(key, freshness, type_)) is not None:
                return local
            fill = None
            try:
                fill = self._core.begin_fill(key)
                raw = self._link.read(key)
                self._sync_clock()
            except BaseException:
                self._core.abandon(fill)
                raise
            result = self._core.serve(key, raw, freshness, type_, fill)
            if isinstance(result, MustWait):
                pending = PendingRead(self._core, key, freshness, result.seen_token, timeout_seconds)
                with self._core.spans.waiting([key]):
                    return pending.result(self._wait(pending), type_)
        except CacheError as error:
            self._core.record_failure(key, error)
            raise
        return result

    def read_all(self, batch: Batch) -> None:
        """Read a whole batch: the entries in Redis in one round trip, the rest by waits that run together.

        The errors are those of `read`, each as its item's result.
        """
        batch.serve_local()
        pending: list[PendingRead] = []
        with batch.reading() as keys:
            if keys:
                found = self._link.read_all(keys)
                self._sync_clock()
                pending = batch.serve(found)
        if pending:
            with self._core.spans.waiting([one.key for one in pending]):
                batch.end(self._runner.run_all([one.begin_wait() for one in pending]))

    def _sync_clock(self) -> None:
        """Sync Redis' clock if it is unknown, and again every 10 s off the caller's path."""
        clock = self._link.routes.clock
        if clock.is_due_once():
            if clock.is_known:
                self._core.resync_clock()
            else:
                self._link.sync_clock()

    def _wait(self, pending: PendingRead) -> bytes:
        if pending.may_share:
            shared = self._flights.share(
                pending.key.entry,
                pending.left_seconds,
                lambda left, begins: self._runner.run(pending.begin_wait(left), begins),
            )
            if (raw := pending.accepted(shared)) is not None:
                return raw
        return self._runner.run(pending.begin_wait())
