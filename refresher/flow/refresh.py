"""The refresh flow: acquire → load → commit. No Celery and no driver in here; what it needs is passed in.

::

    reader          claim ──▶ message ─┐
    worker                             ├─▶ acquire ──▶ load ──▶ encode ──▶ commit ──▶ accepted
                                       │      │          │                    ├─────▶ as stale, invalidated: claim anew
                                       │      │          │                    └─────▶ superseded, lost: drop the work
                                       │      └ held, fresh: nothing to do
                                       └──── retry (ticket) ◀── transient ── fail ──▶ cooling, dead letter
"""

from __future__ import annotations

import logging
import os
import uuid
from dataclasses import replace
from typing import Final, TypeVar

import msgspec

from api_client.errors import InvalidQuery
from api_client.protocol import lease
from api_client.protocol.entry import encode as encode_entry
from api_client.protocol.keys import CacheKey
from api_client.protocol.lease import AcquireStatus, Call, CommitStatus, FailReply
from api_client.protocol.messages import RefreshItem
from api_client.protocol.payload import pack
from refresher.errors import LoadFailed, text_of
from refresher.flow import policy as retry
from refresher.flow.follow_up import hand_back, request_follow_up
from refresher.flow.outcome import Outcome, OutcomeKind
from refresher.flow.ports import RefreshDeps
from refresher.flow.renewals import HeldLease
from refresher.flow.run import Run, bookmarks_of, hard_ttl_seconds, header_of, learned_lease_seconds, letter_of
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
        self._under_way: dict[bytes, Run] = {}

    def refresh(self, item: RefreshItem, by: str | None = None) -> Outcome:
        """Handle one item to its end; ``by`` is what the worker is called in the lease record (default: host:pid).

        Raises:
            CacheUnavailable: Redis could not be asked; the lease, if there is one, runs out by itself.
        """
        try:
            key = item.key(self._settings.namespace)
        except InvalidQuery as error:
            # Its text may hold a param's value.
            log.warning("a refresh of %.100r was asked for that can't be: %s", item.query, type(error).__name__)
            return Outcome(OutcomeKind.SKIPPED, "?", why="malformed")
        if (query := self._deps.registry.find(key.query, key.version)) is not None:
            self._deps.register(query)
        nonce = os.urandom(8)
        reply = self._run(
            lease.acquire(
                key,
                nonce=nonce,
                claim_number=item.claim_number,
                ticket=item.ticket,
                lease_seconds=learned_lease_seconds(None, self._settings, self._jitter_seconds()),
                limit_seconds=self._settings.lease_limit_seconds,
                retention_seconds=self._settings.record_retention_seconds,
                by=by,
            )
        )
        if reply.status is not AcquireStatus.ACQUIRED:
            fresh = reply.status is AcquireStatus.ALREADY_FRESH
            return self._skipped(key, "already_fresh" if fresh else reply.state.value)
        item = msgspec.structs.replace(item, attempt=max(item.attempt, reply.attempts + 1))
        run = Run(item, key, nonce, reply, self._deps.monotonic(), self._deps.monotonic)
        if reply.attempts >= self._settings.max_attempts:
            return self._give_up(run, reply.attempts, _taken_over())
        return self._load_under_lease(run)

    def _load_under_lease(self, run: Run) -> Outcome:
        key = run.key
        self._deps.events.acquired(key.query)
        before = run.before
        learned = learned_lease_seconds(None if before is None else before.run, self._settings, self._jitter_seconds())
        with self._deps.keep_lease(HeldLease(key, run.token, run.nonce, run.lease.left_seconds, learned)):
            self._under_way[run.nonce] = run
            try:
                return self._run_with_retries(run)
            except (KeyboardInterrupt, SystemExit):
                # Any other end of this process, the hard time limit's too, is the main process's to count: handed back,
                # a load that ends its process, or hangs, would go round forever.
                if self._deps.shuts_down() and run.elapsed_seconds() < self._settings.soft_limit_seconds:
                    hand_back(self._deps, self._settings, run)
                raise
            finally:
                del self._under_way[run.nonce]
                self._deps.events.ended(key.query)

    def hand_back_all(self) -> None:
        """Put all runs of this process back into the queue, since it ends; raises nothing."""
        for run in tuple(self._under_way.values()):
            hand_back(self._deps, self._settings, run)

    def finish_lost_run(self, run: Run, failure: LoadFailed) -> Outcome:
        """End a run whose process is gone, as that would have done had it been told of ``failure``.

        Raises:
            CacheUnavailable: Redis could not be asked; the lease runs out by itself.
        """
        attempt = run.item.attempt
        pause_seconds = self._pause_seconds(attempt, failure)
        if pause_seconds is None:
            return self._give_up(run, attempt, failure)
        return self._retry_later(run, attempt, failure, pause_seconds)

    def _run_with_retries(self, run: Run) -> Outcome:
        attempt = run.item.attempt
        while True:
            try:
                return replace(self._load_and_commit(run), attempts=attempt)
            except LoadFailed as failure:
                pause_seconds = self._pause_seconds(attempt, failure)
                if pause_seconds is None:
                    return self._give_up(run, attempt, failure)
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
        query = self._query(run)
        read_started_us = run.now_us()
        left_seconds = self._settings.budget_seconds - run.elapsed_seconds()
        timeout_seconds = max(0.01, min(self._settings.transaction_timeout_seconds, left_seconds))
        bookmarks = bookmarks_of(run, self._settings)
        loaded = self._deps.origin.load(query, run.key.params, bookmarks, timeout_seconds)
        payload = self._deps.encode(loaded.value, query=query.name, max_bytes=self._settings.max_value_bytes)
        try:
            header = header_of(run, query, loaded, read_started_us, self._settings)
        except ValueError as error:
            raise LoadFailed("beta_function", text_of(error), is_transient=False) from error
        packed = pack(payload, self._settings.compress_min_bytes)
        header = msgspec.structs.replace(header, is_compressed=packed.is_compressed)
        return encode_entry(header, run.key.digest, packed.content), hard_ttl_seconds(query)

    def _query(self, run: Run) -> Query:
        query = self._deps.registry.find(run.item.query, run.item.version)
        if query is None:
            raise LoadFailed(
                "unknown_query",
                f"no query {run.item.query!r}, version {run.item.version}, is registered here",
                is_transient=False,
            )
        try:
            query.check_params(run.key.params)
        except TypeError as error:
            raise LoadFailed("wrong_params", f"{query.name}: {error}", is_transient=False) from error
        return query

    def _commit(self, run: Run, entry: bytes, keep_seconds: float) -> Outcome:
        run_seconds, sample_seconds = run.elapsed_seconds(), run.lead_seconds()
        status = self._run(
            lease.commit(
                run.key,
                token=run.token,
                nonce=run.nonce,
                entry=entry,
                hard_ttl_seconds=keep_seconds,
                retention_seconds=self._settings.record_retention_seconds,
            )
        )
        if status in {CommitStatus.ACCEPTED_AS_STALE, CommitStatus.INVALIDATED}:
            request_follow_up(self._deps, self._settings, run, stored=status.accepted)
        if not status.accepted:
            return self._rejected(run, status.name.lower())
        as_stale = status is CommitStatus.ACCEPTED_AS_STALE
        self._deps.events.committed(
            run.key.query, delta_seconds=sample_seconds, run_seconds=run_seconds, as_stale=as_stale
        )
        return Outcome(
            OutcomeKind.COMMITTED_AS_STALE if as_stale else OutcomeKind.COMMITTED,
            run.key.query,
            run.key.short,
            why=run.item.reason.value,
            token=run.token,
            delta_seconds=sample_seconds,
            run_seconds=run_seconds,
        )

    def _pause_seconds(self, attempt: int, failure: LoadFailed) -> float | None:
        settings = self._settings
        if not failure.is_transient or attempt >= settings.max_attempts:
            return None
        if failure.max_attempts is not None and attempt >= failure.max_attempts:
            return None
        return retry.pause_seconds(attempt, settings.retry_backoff, self._deps.uniform())

    def _fits_in_place(self, run: Run, pause_seconds: float) -> bool:
        # Half of the budget stays for the attempt itself; a worker's slot is not blocked by long pauses.
        left_seconds = self._settings.budget_seconds / 2 - run.elapsed_seconds()
        return pause_seconds <= min(MAX_PAUSE_IN_PLACE_SECONDS, left_seconds)

    def _report_retry(self, run: Run, attempt: int, failure: LoadFailed, pause_seconds: float) -> None:
        self._deps.events.retried(run.key.query, kind=failure.kind, attempt=attempt, pause_seconds=pause_seconds)
        log.info(
            "attempt %d of %s %s failed (%s); again in %.2f s",
            attempt,
            run.key.query,
            run.key.short,
            failure.shown,
            pause_seconds,
        )

    def _retry_later(self, run: Run, attempt: int, failure: LoadFailed, wanted_seconds: float) -> Outcome:
        ticket, pause_seconds = uuid.uuid4().hex, retry.whole_seconds(wanted_seconds)
        kept = self._run(
            lease.retry(
                run.key,
                token=run.token,
                nonce=run.nonce,
                ticket=ticket,
                pause_seconds=pause_seconds + RETRY_SLACK_SECONDS,
                kind=failure.kind,
                attempts=attempt,
                retention_seconds=self._settings.record_retention_seconds,
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

    def _give_up(self, run: Run, attempt: int, failure: LoadFailed) -> Outcome:
        spread = retry.cooling_spread(self._deps.uniform())
        counts = retry.counts_against_key(failure.kind)
        cooling = self._run(
            lease.fail(
                run.key,
                token=run.token,
                nonce=run.nonce,
                cooling_seconds=self._settings.cooling_seconds * spread,
                kind=failure.kind,
                attempts=attempt,
                retention_seconds=self._settings.record_retention_seconds,
                longest_seconds=self._settings.cooling_max_seconds * spread if counts else 0.0,
                bookmarks=failure.bookmarks,
            )
        )
        if cooling is None:
            return self._rejected(run, "superseded")
        self._deps.events.failed(run.key.query, kind=failure.kind, attempts=attempt)
        log.error(
            "the refresh of %s %s was given up: %s; attempts: %d; it cools for %.0f s (%d in a row)",
            run.key.query,
            run.key.short,
            failure.shown,
            attempt,
            cooling.pause_seconds,
            cooling.failures,
        )
        self._write_dead_letter(run, attempt, failure, cooling)
        return Outcome(OutcomeKind.FAILED, run.key.query, run.key.short, why=failure.kind, attempts=attempt)

    def _write_dead_letter(self, run: Run, attempts: int, failure: LoadFailed, cooling: FailReply) -> None:
        query = self._deps.registry.find(run.item.query, run.item.version)
        try:
            letter = letter_of(run, attempts, failure, cooling.failures, query)
            self._deps.write_dead_letter(letter, cooling.failed_token)
        except Exception as error:  # noqa: BLE001 - whatever it is: the cooling is recorded, nothing is left to do
            log.warning(
                "the dead letter of %s %s could not be kept: %s", run.key.query, run.key.short, type(error).__name__
            )

    def _skipped(self, key: CacheKey, why: str) -> Outcome:
        self._deps.events.skipped(key.query, why=why)
        return Outcome(OutcomeKind.SKIPPED, key.query, key.short, why=why)

    def _rejected(self, run: Run, why: str) -> Outcome:
        self._deps.events.rejected(run.key.query, why=why)
        log.warning("a write of %s %s was rejected: %s (token %d)", run.key.query, run.key.short, why, run.token)
        return Outcome(OutcomeKind.REJECTED, run.key.query, run.key.short, why=why, token=run.token)

    def _jitter_seconds(self) -> float:
        low, high = self._settings.jitter_min_ms, self._settings.jitter_max_ms
        return (low + (high - low) * self._deps.uniform()) / 1000

    def _run(self, call: Call[T]) -> T:
        return self._deps.records.run(call)


def _taken_over() -> LoadFailed:
    return LoadFailed(
        "taken_over", "its lease ran out: the process that loaded it had ended, or stood still", is_transient=True
    )
