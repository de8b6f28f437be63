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
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from api_client.errors import CacheUnavailable
from api_client.protocol import lease
from api_client.protocol.lease import Call, CommitStatus, FailReply
from api_client.protocol.messages import RefreshItem
from api_client.transport.scripts import none_failed
from api_client.transport.wire import is_out_of_memory
from refresher.errors import LoadFailed
from refresher.flow import nesting, policy
from refresher.flow.acquire import acquire, report_takeover, taken_over
from refresher.flow.entries import entry_of, parts_of
from refresher.flow.follow_up import hand_back, hand_back_call, request_follow_up
from refresher.flow.outcome import Ended, Outcome, OutcomeKind
from refresher.flow.ports import LoadShare, RefreshDeps
from refresher.flow.put_back import fitting, pass_on
from refresher.flow.registration import register, with_tags
from refresher.flow.renewals import HeldLease
from refresher.flow.revalidation import previous_of
from refresher.flow.run import (
    LoadedEntry,
    Run,
    bookmarks_of,
    failure_for_readers,
    learned_lease_seconds,
    letter_of,
    shown_failure,
)
from refresher.results import Previous
from refresher.settings import WorkerSettings

log: Final = logging.getLogger(__name__)
T = TypeVar("T")

MAX_PAUSE_IN_PLACE_SECONDS: Final = 1.0
RETRY_SLACK_SECONDS: Final = 5.0
COMMITS_AGAIN: Final = 8
COMMIT_PAUSE_SECONDS: Final = 0.25


class Refresher:
    """Handles refresh items, several of one query together if its loader takes batches. Thread-safe."""

    def __init__(self, settings: WorkerSettings, deps: RefreshDeps) -> None:
        self._settings, self._deps = settings, deps
        self._running: dict[bytes, Run] = {}
        self._was_full = False
        self._untagged: set[str] = set()  # query names

    def refresh(self, item: RefreshItem, owner: str | None = None) -> Outcome:
        """Handle one item to its end; ``owner`` is this worker's name in the lease record (default: host:pid).

        Raises:
            CacheUnavailable: Redis did not answer; the lease, if there is one, expires by itself.
        """
        return none_failed(self.refresh_together([item], owner))[0]

    def refresh_together(self, items: Sequence[RefreshItem], owner: str | None = None) -> list[Ended]:
        """Handle items of one query and version, at most its ``batch``, to their ends with one load.

        Each item has its own lease, token and outcome, so one that is held, fresh, invalidated or at fault ends alone.
        A step for all of them takes one round trip.

        Returns:
            The items' outcomes in order, or an error if Redis did not answer; a lease, if there is one, then expires.
        """
        query = self._deps.registry.find(items[0].query, items[0].version)
        share = self._deps.share_of(query, items)
        try:
            begun = (
                pass_on(self._deps, self._settings.namespace, query, items)
                or share.take()
                or acquire(self._deps, self._settings, query, items, owner)
            )
            ended = self._load_under_leases([one for one in begun if isinstance(one, Run)], share)
            return [ended[one.nonce] if isinstance(one, Run) else one for one in begun]
        except CacheUnavailable as error:
            return [error] * len(items)
        finally:
            share.give_back()

    def with_deps(self, deps: RefreshDeps) -> Refresher:
        """Return a refresher with other dependencies, whose runs also belong to this one (`hand_back_all`)."""
        other = Refresher(self._settings, deps)
        other._running = self._running
        return other

    def hand_back_all(self) -> None:
        """Put all runs of this process back into the queue because it ends; raises nothing."""
        hand_back(self._deps, self._settings, tuple(self._running.values()))

    def finish_lost_run(self, run: Run, failure: LoadFailed, *, was_alone: bool = True) -> Outcome:
        """End a run whose process is gone, as that process would have after ``failure``.

        Raises:
            CacheUnavailable: Redis did not answer; the lease expires by itself.
        """
        if not was_alone:
            return self._send_alone(run, failure)
        return self._end_failed(run, failure, self._pause_seconds(run, failure))

    def _load_under_leases(self, runs: Sequence[Run], share: LoadShare) -> dict[bytes, Ended]:
        """Bring runs to their ends, by nonce. A run that may have ended a process before is loaded alone."""
        unfit = [run for run in runs if self._is_spent(run) or (run.lease.has_overtaken and len(runs) > 1)]
        nonces = {run.nonce for run in unfit}
        loaded = [run for run in runs if run.nonce not in nonces]
        for run in loaded:
            report_takeover(self._deps, run)
        with self._holding(loaded) if loaded else nullcontext():
            ended = {run.nonce: self._end_unloaded(run) for run in unfit}
            if loaded:
                ends = self._load_until_ended(with_tags(self._deps.lease_steps, self._settings, loaded), share)
                ended.update(zip((run.nonce for run in loaded), ends, strict=True))
        return ended

    def _is_spent(self, run: Run) -> bool:
        return run.lease.attempts >= self._settings.max_attempts

    def _end_unloaded(self, run: Run) -> Ended:
        if self._is_spent(run):
            return self._ended(self._abandon, run, run.lease.attempts, taken_over())
        return self._ended(self._send_alone, run, taken_over())

    @contextmanager
    def _holding(self, runs: Sequence[Run]) -> Iterator[None]:
        """Keep the runs' leases during the block; if the worker ends in it, hand them back."""
        query = runs[0].key.query
        try:
            for _ in runs:
                self._deps.events.acquired(query)
            with self._deps.keep_leases([self._held_lease(run) for run in runs]):
                self._running.update((run.nonce, run) for run in runs)
                yield
        except BaseException as error:
            # The main process counts any other end of this process, even by the hard time limit. If it were handed
            # back, a load that ends its process, or hangs, would circulate forever.
            if self._deps.hands_back(error) and runs[0].elapsed_seconds() < self._settings.soft_limit_seconds:
                hand_back(self._deps, self._settings, runs)
            raise
        finally:
            for run in runs:
                self._running.pop(run.nonce, None)
                self._deps.events.ended(query)

    def _held_lease(self, run: Run) -> HeldLease:
        learned = learned_lease_seconds(run.before.run if run.before else None, self._settings, self._deps.uniform())
        return HeldLease(run.key, run.token, run.nonce, run.lease.left_seconds, learned)

    def _load_until_ended(self, runs: Sequence[Run], share: LoadShare) -> list[Ended]:
        """Load and commit. A failed load of one run is repeated; that of several is divided."""
        while True:
            share.begin()
            loaded = self._load(runs)
            try:
                if not isinstance(loaded, LoadFailed):
                    return self._commit(runs, loaded, share)
                if len(runs) > 1:
                    return self._divide(runs, loaded, share)
                (run,) = runs
                pause_seconds = self._pause_seconds(run, loaded)
                fits = pause_seconds is not None and self._fits_in_place(run, pause_seconds)
                if pause_seconds is None or not fits or not _is_granted_again(share):
                    return [self._ended(self._end_failed, run, loaded, pause_seconds)]
                self._report_retry(run, loaded, pause_seconds)
            finally:
                del loaded  # otherwise a failure's traceback, through this frame, would keep the loaded value alive
            self._deps.sleep(pause_seconds)
            runs = [run.next_attempt()]

    def _divide(self, runs: Sequence[Run], failure: LoadFailed, share: LoadShare) -> list[Ended]:
        """End runs whose joint load has failed, by halves until the one at fault is alone.

        If halves would meet the same, they are not divided: a fault of the graph is each run's own failure, and runs
        that have used up the time are sent alone. So are those left when half of the time is over, before the worker's
        limits end the process.
        """
        if failure.kind in policy.TIMEOUTS:
            return self._send_each_alone(runs, failure)
        if failure.kind in policy.GRAPH_FAULTS:
            return self._end_each(runs, lambda run: self._end_failed(run, failure, self._pause_seconds(run, failure)))
        log.info(
            "the load of %d keys of %s failed (%s); dividing them",
            len(runs),
            runs[0].key.query,
            shown_failure(runs[0], failure, self._settings),
        )
        middle = len(runs) // 2
        ended: list[Ended] = []
        for half in (runs[:middle], runs[middle:]):
            if self._fits_in_place(half[0], 0.0) and _is_granted_again(share):
                ended += self._load_until_ended(half, share)
            else:
                ended += self._send_each_alone(half, failure)
        return ended

    def _load(self, runs: Sequence[Run]) -> list[LoadedEntry | LoadFailed] | LoadFailed:
        """Return each run's entry or failure, or one failure for all."""
        # Before a time limit may interrupt, since a connection to Redis would not survive that.
        previous = previous_of(runs, self._deps.lease_steps, self._settings.max_value_bytes, self._untagged)
        try:
            with self._deps.interruptible():
                return self._entries(runs, previous)
        except BaseException as error:  # noqa: BLE001 - it is raised again, or what it means is returned
            failure = self._deps.failure_of(error)
            try:
                if failure is None:
                    raise
                if failure.kind in policy.TIMEOUTS and nesting.left_seconds() <= 0:
                    raise nesting.OutOfTime from failure
                if failure is not error:
                    failure.__cause__ = error
                if runs[0].query is not None:
                    failure.locate(runs[0].query.loader)
                return failure
            finally:
                del failure  # otherwise its traceback, through this frame, would keep the loaded value alive

    def _entries(self, runs: Sequence[Run], previous: Sequence[Previous | None]) -> list[LoadedEntry | LoadFailed]:
        """Return each run's entry or failure. All code of the query's author runs in here."""
        settings = self._settings
        calls = [run.key.params for run in runs]  # a copy for this attempt, since the loader may change them
        query = fitting(runs[0].query, runs[0].item, calls[0])
        read_started_us = [run.now_us() for run in runs]
        left_seconds = min(settings.budget_seconds - runs[0].elapsed_seconds(), nesting.left_seconds())
        timeout_seconds = max(0.01, min(settings.transaction_timeout_seconds, left_seconds))
        bookmarks = tuple(dict.fromkeys(mark for run in runs for mark in bookmarks_of(run, settings)))
        self._deps.events.load_begun(query.name, keys=len(runs))
        with nesting.within(tuple(run.key for run in runs), timeout_seconds):
            loaded = self._deps.origin.load(query, calls, previous, bookmarks, timeout_seconds)
        entry = partial(entry_of, query, encode=self._deps.encode, settings=settings)
        return [
            entry(*each, u=self._deps.uniform()) for each in zip(runs, loaded, read_started_us, previous, strict=True)
        ]

    def _commit(
        self, runs: Sequence[Run], entries: Sequence[LoadedEntry | LoadFailed], share: LoadShare
    ) -> list[Ended]:
        """Commit the runs with entries and fail the others, in parts of some megabytes per round trip.

        The first part also gives the share back, since the load has ended.
        """
        ended: list[Ended] = []
        for part in parts_of(zip(runs, entries, strict=True), self._settings.max_value_bytes):
            unregistered, replies = self._store(
                [(run, entry) for run, entry in part if isinstance(entry, LoadedEntry)], share
            )
            for run, entry in part:
                if isinstance(entry, LoadFailed):
                    ended.append(self._ended(self._end_failed, run, entry, self._pause_seconds(run, entry)))
                elif run.nonce in unregistered:
                    ended.append(unregistered[run.nonce])
                elif isinstance(reply := next(replies), CacheUnavailable):
                    ended.append(self._commit_again(run, entry, reply))
                else:
                    ended.append(self._ended(self._committed, run, entry, reply))
        return ended

    def _store(
        self, loaded: Sequence[tuple[Run, LoadedEntry]], share: LoadShare
    ) -> tuple[Mapping[bytes, CacheUnavailable], Iterator[CommitStatus | CacheUnavailable]]:
        """Register the loaded entries and then commit them, so that an invalidation finds whatever is committed.

        Returns the errors of runs that could not be registered, by nonce, and the results of the others' commits.

        A run that can't be registered is handed back, since an expired lease would count as a lost process. Nothing
        waits for that or for the share: Redis has had its time, and either ends by itself.
        """
        settings, steps = self._settings, self._deps.lease_steps
        unregistered = register(steps, settings, loaded)
        commits = [self._commit_call(*each) for each in loaded if each[0].nonce not in unregistered]
        returns = [hand_back_call(run, settings) for run, _ in loaded if run.nonce in unregistered]
        calls: list[Call[Any]] = [*commits, *returns, *share.last_steps()]
        replies = steps.run_each(calls, until=lambda answered: all(answered[: len(commits)]))
        return unregistered, iter(replies[: len(commits)])

    def _commit_again(self, run: Run, entry: LoadedEntry, error: CacheUnavailable) -> Ended:
        """Repeat a commit for which Redis has no memory, because the value would have to be loaded again; then cool."""
        for _ in range(COMMITS_AGAIN):
            if not is_out_of_memory(error.__cause__):
                break
            self._deps.sleep(COMMIT_PAUSE_SECONDS)
            try:
                return self._committed(run, entry, self._step(self._commit_call(run, entry)))
            except CacheUnavailable as again:
                error = again
        if not is_out_of_memory(error.__cause__):
            return error
        why = f"Redis has no memory for it, and evicts nothing: {error.__cause__}"
        if not self._was_full:
            log.error("the cache is full, raise maxmemory or let it evict (maxmemory-policy): %s", error.__cause__)
        self._was_full = True
        full = LoadFailed("cache_full", why, is_transient=False, why=why)
        return self._ended(self._abandon, run, run.item.attempt, full)

    def _commit_call(self, run: Run, entry: LoadedEntry) -> Call[CommitStatus]:
        return lease.commit(
            run.key,
            entry=entry.content,
            hard_ttl_seconds=entry.hard_ttl_seconds,
            prolongs=entry.prolongs,
            **run.own_lease(self._settings),
        )

    def _committed(self, run: Run, entry: LoadedEntry, status: CommitStatus) -> Outcome:
        query, run_seconds, lead_seconds = run.key.query, run.elapsed_seconds(), run.lead_seconds()
        if status is CommitStatus.PREVIOUS_GONE:
            return self._send_alone(run, _previous_gone())
        if status in {CommitStatus.ACCEPTED_AS_STALE, CommitStatus.INVALIDATED}:
            request_follow_up(self._deps, self._settings, run, stored=status.accepted)
        if not status.accepted:
            return self._rejected(run, status.name.lower())
        self._was_full = False
        as_stale = status is CommitStatus.ACCEPTED_AS_STALE
        self._deps.events.committed(query, delta_seconds=lead_seconds, run_seconds=run_seconds, as_stale=as_stale)
        if not as_stale and (stale_seconds := run.stale_seconds()) is not None:
            self._deps.events.was_stale(query, until="stored", seconds=stale_seconds)
        if entry.prolongs:
            self._deps.events.found_unchanged(query)
        elif not entry.tags:
            self._untagged.add(query)
        stored = OutcomeKind.UNCHANGED if entry.prolongs else OutcomeKind.COMMITTED
        kind = OutcomeKind.COMMITTED_AS_STALE if as_stale else stored
        return Outcome(
            kind, query, run.key.short, why=run.item.reason.value, token=run.token, delta_seconds=lead_seconds,
            run_seconds=run_seconds, attempts=run.item.attempt,
        )  # fmt: skip

    def _ended(self, end: Callable[..., Outcome], run: Run, *args: Any) -> Ended:
        """Return the outcome of ``end`` for a run, or the error if Redis did not answer for it."""
        try:
            return end(run, *args)
        except CacheUnavailable as error:
            return error

    def _end_failed(self, run: Run, failure: LoadFailed, pause_seconds: float | None) -> Outcome:
        """End a failed run: send its next attempt as a message of its own after the pause; with None abandon it."""
        if pause_seconds is None:
            return self._abandon(run, run.item.attempt, failure)
        return self._retry_later(run, run.item.attempt, failure, pause_seconds)

    def _send_alone(self, run: Run, failure: LoadFailed) -> Outcome:
        """End a run that failed together with others, without counting an attempt."""
        return self._retry_later(run, run.item.attempt - 1, failure, policy.MIN_PAUSE_SECONDS)

    def _send_each_alone(self, runs: Sequence[Run], failure: LoadFailed) -> list[Ended]:
        return self._end_each(runs, lambda run: self._send_alone(run, failure))

    def _end_each(self, runs: Sequence[Run], end: Callable[[Run], Outcome]) -> list[Ended]:
        """Return the outcome of ``end`` for each run; once Redis does not answer, the others get the same error.

        Otherwise each would wait for Redis, one after another, until the worker's limit ends the process.
        """
        ended: list[Ended] = []
        for run in runs:
            is_lost = bool(ended) and isinstance(ended[-1], CacheUnavailable)
            ended.append(ended[-1] if is_lost else self._ended(end, run))
        return ended

    def _pause_seconds(self, run: Run, failure: LoadFailed) -> float | None:
        """Return the pause before the next attempt, or None if there is none."""
        settings, attempt = self._settings, run.item.attempt
        if not failure.is_transient or attempt >= min(settings.max_attempts, failure.max_attempts or math.inf):
            return None
        return policy.pause_seconds(attempt, settings.retry_backoff, self._deps.uniform())

    def _fits_in_place(self, run: Run, pause_seconds: float) -> bool:
        # Half of the budget stays for the attempt itself, and long pauses do not block a worker's slot.
        left_seconds = min(self._settings.budget_seconds / 2 - run.elapsed_seconds(), nesting.left_seconds())
        return pause_seconds <= min(MAX_PAUSE_IN_PLACE_SECONDS, left_seconds)

    def _report_retry(self, run: Run, failure: LoadFailed, pause_seconds: float) -> None:
        attempt = run.item.attempt
        self._deps.events.retried(run.key.query, kind=failure.kind, attempt=attempt, pause_seconds=pause_seconds)
        shown = shown_failure(run, failure, self._settings)
        log.info("attempt %d of %s failed (%s); retrying in %.2f s", attempt, run.name, shown, pause_seconds)

    def _retry_later(self, run: Run, attempts: int, failure: LoadFailed, wanted_seconds: float) -> Outcome:
        ticket, pause_seconds = uuid.uuid4().hex, policy.whole_seconds(wanted_seconds)
        kept = self._step(
            lease.retry(
                run.key,
                ticket=ticket,
                pause_seconds=pause_seconds + RETRY_SLACK_SECONDS,
                kind=failure.kind,
                attempts=attempts,
                **run.own_lease(self._settings),
            )
        )
        if not kept:
            return self._rejected(run, "superseded")
        self._report_retry(run, failure, pause_seconds)
        again = msgspec.structs.replace(run.item, ticket=ticket, attempt=attempts + 1, cache_attempt=0)
        return Outcome(
            OutcomeKind.RETRY, run.key.query, run.key.short, why=failure.kind, attempts=run.item.attempt, again=again,
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
                why=failure_for_readers(run, failure, self._settings),
                longest_seconds=self._settings.cooling_max_seconds * spread if counts else 0.0,
                bookmarks=failure.bookmarks,
                **run.own_lease(self._settings),
            )
        )
        if cooling is None:
            return self._rejected(run, "superseded")
        self._deps.events.failed(run.key.query, kind=failure.kind, attempts=attempt)
        log.error(
            "abandoned the refresh of %s: %s; attempts: %d; backing off for %.0f s%s",
            run.name, shown_failure(run, failure, self._settings), attempt, cooling.pause_seconds,
            f" (failure {cooling.failures} in a row)" if cooling.failures else "",
        )  # fmt: skip
        self._write_dead_letter(run, attempt, failure, cooling)
        return Outcome(OutcomeKind.FAILED, run.key.query, run.key.short, why=failure.kind, attempts=attempt)

    def _write_dead_letter(self, run: Run, attempts: int, failure: LoadFailed, cooling: FailReply) -> None:
        letter = letter_of(run, attempts, failure, cooling.failures)
        try:
            self._deps.write_dead_letter(letter, cooling.failed_token)
        except Exception as error:  # noqa: BLE001 - whatever it is: the backoff is recorded, nothing is left to do
            log.warning("could not write the dead letter of %s: %s", run.name, type(error).__name__)

    def _rejected(self, run: Run, why: str) -> Outcome:
        self._deps.events.rejected(run.key.query, why=why)
        log.warning("a write of %s was rejected: %s (token %d)", run.name, why, run.token)
        return Outcome(OutcomeKind.REJECTED, run.key.query, run.key.short, why=why, token=run.token)

    def _step(self, call: Call[T]) -> T:
        return self._deps.lease_steps.run(call)


def _is_granted_again(share: LoadShare) -> bool:
    """Take one more load's share; return False if Redis does not answer."""
    try:
        return share.take_again()
    except CacheUnavailable:
        return False


def _previous_gone() -> LoadFailed:
    return LoadFailed("previous_gone", "the entry that it has found unchanged is gone", is_transient=True)
