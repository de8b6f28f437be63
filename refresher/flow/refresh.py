"""The refresh flow: acquire → load → commit.

::

    reader          claim ──▶ message ─┐
    worker                             ├─▶ acquire ──▶ load ──▶ encode ──▶ commit ──▶ accepted
                                       │      │          │                    ├─────▶ as stale, invalidated: claim anew
                                       │      │          │                    └─────▶ superseded, lost: drop the value
                                       │      └ held, fresh: nothing to do
                                       └──── retry (ticket) ◀── transient ── fail ──▶ backoff, dead letter
"""

from __future__ import annotations

import logging
import math
import os
import uuid
from dataclasses import replace
from typing import Any, Final, TypeVar

import msgspec

from api_client.errors import InvalidQuery
from api_client.protocol import lease
from api_client.protocol.entry import encode as encode_entry
from api_client.protocol.keys import CacheKey
from api_client.protocol.lease import AcquireStatus, Call, CommitStatus, FailReply
from api_client.protocol.messages import RefreshItem
from api_client.protocol.payload import pack
from refresher.errors import LoadFailed, text_of
from refresher.flow import policy
from refresher.flow.follow_up import hand_back, request_follow_up
from refresher.flow.outcome import Outcome, OutcomeKind
from refresher.flow.ports import RefreshDeps
from refresher.flow.renewals import HeldLease
from refresher.flow.run import (
    Run,
    bookmarks_of,
    hard_ttl_seconds,
    header_of,
    learned_lease_seconds,
    letter_of,
)
from refresher.queries import Query
from refresher.settings import WorkerSettings

log: Final = logging.getLogger(__name__)
T = TypeVar("T")

MAX_PAUSE_IN_PLACE_SECONDS: Final = 1.0
RETRY_SLACK_SECONDS: Final = 5.0


class Refresher:
    """Handles refresh items, one at a time; thread-safe."""

    def __init__(self, settings: WorkerSettings, deps: RefreshDeps) -> None:
        self._settings, self._deps = settings, deps
        self._running: dict[bytes, Run] = {}

    def refresh(self, item: RefreshItem, owner: str | None = None) -> Outcome:
        """Handle one item to its end; ``owner`` is this worker's name in the lease record (default: host:pid).

        Raises:
            CacheUnavailable: Redis did not answer; the lease, if there is one, runs out by itself.
        """
        settings, deps = self._settings, self._deps
        try:
            key = item.key(settings.namespace)
        except InvalidQuery as error:
            # Its text may hold a param's value.
            log.warning("invalid refresh request for %.100r: %s", item.query, type(error).__name__)
            return Outcome(OutcomeKind.SKIPPED, "?", why="malformed")
        if (query := deps.registry.find(key.query, key.version)) is not None:
            deps.register(query)
        nonce = os.urandom(8)
        reply = self._step(
            lease.acquire(
                key,
                nonce=nonce,
                claim_number=item.claim_number,
                ticket=item.ticket,
                lease_seconds=learned_lease_seconds(None, settings, self._jitter_seconds()),
                limit_seconds=settings.lease_limit_seconds,
                retention_seconds=settings.record_retention_seconds,
                by=owner,
            )
        )
        if reply.status is not AcquireStatus.ACQUIRED:
            fresh = reply.status is AcquireStatus.ALREADY_FRESH
            return self._skipped(key, "already_fresh" if fresh else reply.state.value)
        item = msgspec.structs.replace(item, attempt=max(item.attempt, reply.attempts + 1))
        run = Run(item, key, query, nonce, reply, deps.monotonic(), deps.monotonic)
        if reply.attempts >= settings.max_attempts:
            return self._abandon(run, reply.attempts, _taken_over())
        return self._load_under_lease(run)

    def hand_back_all(self) -> None:
        """Put all runs of this process back into the queue, since it ends; raises nothing."""
        for run in tuple(self._running.values()):
            hand_back(self._deps, self._settings, run)

    def finish_lost_run(self, run: Run, failure: LoadFailed) -> Outcome:
        """End a run whose process is gone, as that process would have after ``failure``.

        Raises:
            CacheUnavailable: Redis did not answer; the lease runs out by itself.
        """
        attempt = run.item.attempt
        pause_seconds = self._pause_seconds(attempt, failure)
        if pause_seconds is None:
            return self._abandon(run, attempt, failure)
        return self._retry_later(run, attempt, failure, pause_seconds)

    def _load_under_lease(self, run: Run) -> Outcome:
        query = run.key.query
        self._deps.events.acquired(query)
        learned = learned_lease_seconds(run.before.run if run.before else None, self._settings, self._jitter_seconds())
        with self._deps.keep_lease(HeldLease(run.key, run.token, run.nonce, run.lease.left_seconds, learned)):
            self._running[run.nonce] = run
            try:
                return self._run_with_retries(run)
            except (KeyboardInterrupt, SystemExit):
                # Any other end of this process, the hard time limit's too, is the main process's to count: handed back,
                # a load that ends its process, or hangs, would go round forever.
                if self._deps.shuts_down() and run.elapsed_seconds() < self._settings.soft_limit_seconds:
                    hand_back(self._deps, self._settings, run)
                raise
            finally:
                del self._running[run.nonce]
                self._deps.events.ended(query)

    def _run_with_retries(self, run: Run) -> Outcome:
        attempt = run.item.attempt
        while True:
            try:
                return replace(self._load_and_commit(run), attempts=attempt)
            except LoadFailed as failure:
                pause_seconds = self._pause_seconds(attempt, failure)
                if pause_seconds is None:
                    return self._abandon(run, attempt, failure)
                if not self._fits_in_place(run, pause_seconds):
                    return self._retry_later(run, attempt, failure, pause_seconds)
                self._report_retry(run, attempt, failure, pause_seconds)
            self._deps.sleep(pause_seconds)
            attempt += 1

    def _load_and_commit(self, run: Run) -> Outcome:
        try:
            with self._deps.interruptible():
                entry, keep_seconds = self._load(run)
        except BaseException as error:  # noqa: BLE001 - it is raised again, or what it means
            failure = self._deps.failure_of(error)
            try:
                if failure is None or failure is error:
                    raise
                raise failure from error
            finally:
                del failure  # else its traceback, which has this frame, would keep the value that was loaded
        return self._commit(run, entry, keep_seconds)

    def _load(self, run: Run) -> tuple[bytes, float]:
        """Return the new entry, and for how long Redis is to keep it. All code of the query's author runs in here."""
        settings, params = self._settings, run.key.params  # this attempt's own: the loader may change them
        query = _checked_query(run, params)
        read_started_us = run.now_us()
        left_seconds = settings.budget_seconds - run.elapsed_seconds()
        timeout_seconds = max(0.01, min(settings.transaction_timeout_seconds, left_seconds))
        loaded = self._deps.origin.load(query, params, bookmarks_of(run, settings), timeout_seconds)
        payload = self._deps.encode(loaded.value, query=query.name, max_bytes=settings.max_value_bytes)
        try:
            header = header_of(run, query, loaded, read_started_us, settings)
        except ValueError as error:
            raise LoadFailed("beta_function", text_of(error), is_transient=False) from error
        packed = pack(payload, settings.compress_min_bytes)
        header = msgspec.structs.replace(header, is_compressed=packed.is_compressed)
        return encode_entry(header, run.key.digest, packed.content), hard_ttl_seconds(query)

    def _commit(self, run: Run, entry: bytes, keep_seconds: float) -> Outcome:
        query, run_seconds, lead_seconds = run.key.query, run.elapsed_seconds(), run.lead_seconds()
        status = self._step(
            lease.commit(run.key, entry=entry, hard_ttl_seconds=keep_seconds, **run.own_lease(self._settings))
        )
        if status in {CommitStatus.ACCEPTED_AS_STALE, CommitStatus.INVALIDATED}:
            request_follow_up(self._deps, self._settings, run, stored=status.accepted)
        if not status.accepted:
            return self._rejected(run, status.name.lower())
        as_stale = status is CommitStatus.ACCEPTED_AS_STALE
        self._deps.events.committed(query, delta_seconds=lead_seconds, run_seconds=run_seconds, as_stale=as_stale)
        kind = OutcomeKind.COMMITTED_AS_STALE if as_stale else OutcomeKind.COMMITTED
        return Outcome(
            kind, query, run.key.short, why=run.item.reason.value, token=run.token, delta_seconds=lead_seconds,
            run_seconds=run_seconds,
        )  # fmt: skip

    def _pause_seconds(self, attempt: int, failure: LoadFailed) -> float | None:
        """Return the pause before the next attempt; None: there is none."""
        settings = self._settings
        if not failure.is_transient or attempt >= min(settings.max_attempts, failure.max_attempts or math.inf):
            return None
        return policy.pause_seconds(attempt, settings.retry_backoff, self._deps.uniform())

    def _fits_in_place(self, run: Run, pause_seconds: float) -> bool:
        # Half of the budget stays for the attempt itself; a worker's slot is not blocked by long pauses.
        left_seconds = self._settings.budget_seconds / 2 - run.elapsed_seconds()
        return pause_seconds <= min(MAX_PAUSE_IN_PLACE_SECONDS, left_seconds)

    def _report_retry(self, run: Run, attempt: int, failure: LoadFailed, pause_seconds: float) -> None:
        self._deps.events.retried(run.key.query, kind=failure.kind, attempt=attempt, pause_seconds=pause_seconds)
        log.info("attempt %d of %s failed (%s); retrying in %.2f s", attempt, run.name, failure.shown, pause_seconds)

    def _retry_later(self, run: Run, attempt: int, failure: LoadFailed, wanted_seconds: float) -> Outcome:
        ticket, pause_seconds = uuid.uuid4().hex, policy.whole_seconds(wanted_seconds)
        kept = self._step(
            lease.retry(
                run.key,
                ticket=ticket,
                pause_seconds=pause_seconds + RETRY_SLACK_SECONDS,
                kind=failure.kind,
                attempts=attempt,
                **run.own_lease(self._settings),
            )
        )
        if not kept:
            return self._rejected(run, "superseded")
        self._report_retry(run, attempt, failure, pause_seconds)
        again = msgspec.structs.replace(run.item, ticket=ticket, attempt=attempt + 1, cache_attempt=0)
        return Outcome(
            OutcomeKind.RETRY, run.key.query, run.key.short, why=failure.kind, attempts=attempt, again=again,
            pause_seconds=pause_seconds,
        )  # fmt: skip

    def _abandon(self, run: Run, attempt: int, failure: LoadFailed) -> Outcome:
        spread = policy.cooling_spread(self._deps.uniform())
        counts = policy.counts_against_key(failure.kind)
        cooling = self._step(
            lease.fail(
                run.key,
                cooling_seconds=self._settings.cooling_seconds * spread,
                kind=failure.kind,
                attempts=attempt,
                longest_seconds=self._settings.cooling_max_seconds * spread if counts else 0.0,
                bookmarks=failure.bookmarks,
                **run.own_lease(self._settings),
            )
        )
        if cooling is None:
            return self._rejected(run, "superseded")
        self._deps.events.failed(run.key.query, kind=failure.kind, attempts=attempt)
        log.error(
            "abandoned the refresh of %s: %s; attempts: %d; backing off for %.0f s (failure %d in a row)",
            run.name, failure.shown, attempt, cooling.pause_seconds, cooling.failures,
        )  # fmt: skip
        self._write_dead_letter(run, attempt, failure, cooling)
        return Outcome(OutcomeKind.FAILED, run.key.query, run.key.short, why=failure.kind, attempts=attempt)

    def _write_dead_letter(self, run: Run, attempts: int, failure: LoadFailed, cooling: FailReply) -> None:
        letter = letter_of(run, attempts, failure, cooling.failures)
        try:
            self._deps.write_dead_letter(letter, cooling.failed_token)
        except Exception as error:  # noqa: BLE001 - whatever it is: the backoff is recorded, nothing is left to do
            log.warning("could not write the dead letter of %s: %s", run.name, type(error).__name__)

    def _skipped(self, key: CacheKey, why: str) -> Outcome:
        self._deps.events.skipped(key.query, why=why)
        return Outcome(OutcomeKind.SKIPPED, key.query, key.short, why=why)

    def _rejected(self, run: Run, why: str) -> Outcome:
        self._deps.events.rejected(run.key.query, why=why)
        log.warning("a write of %s was rejected: %s (token %d)", run.name, why, run.token)
        return Outcome(OutcomeKind.REJECTED, run.key.query, run.key.short, why=why, token=run.token)

    def _jitter_seconds(self) -> float:
        low, high = self._settings.jitter_min_ms, self._settings.jitter_max_ms
        return (low + (high - low) * self._deps.uniform()) / 1000

    def _step(self, call: Call[T]) -> T:
        return self._deps.lease_steps.run(call)


def _checked_query(run: Run, params: dict[str, Any]) -> Query:
    if run.query is None:
        message = f"no query {run.item.query!r}, version {run.item.version}, is registered here"
        raise LoadFailed("unknown_query", message, is_transient=False)
    try:
        run.query.check_params(params)
    except TypeError as error:
        raise LoadFailed("wrong_params", f"{run.query.name}: {error}", is_transient=False) from error
    return run.query


def _taken_over() -> LoadFailed:
    return LoadFailed(
        "taken_over", "its lease ran out: the process that loaded it had ended, or stood still", is_transient=True
    )
