"""Loads in place: a worker process loads what its reads would wait for, by the usual refresh flow.

::

    a host's task, or a loader ──▶ get_cached ──▶ miss: claim ──▶ acquire ──▶ load ──▶ commit ──▶ read
                                                           └─ held by another process: wait, as elsewhere

A waiting task would hold a slot of the pool that the refresh needs, and all slots may be held like that. An interrupt
by a time limit, or by the end of the process, is no fault of the key: the run is handed back without counting an
attempt.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, ParamSpec, TypeAlias

from celery.exceptions import SoftTimeLimitExceeded

from api_client.errors import CacheUnavailable
from api_client.protocol.clock import monotonic_seconds
from api_client.protocol.keys import CacheKey
from api_client.protocol.lease import RecordState
from api_client.protocol.messages import RefreshItem, RefreshReason, item_for
from api_client.read.in_place import InPlaceEnd, Wanted
from api_client.transport.scripts import none_failed
from refresher.errors import LoadFailed
from refresher.flow import nesting
from refresher.flow.budgets import NO_BUDGET
from refresher.flow.outcome import Outcome, OutcomeKind, summary
from refresher.flow.ports import LoadShare, RefreshDeps
from refresher.flow.refresh import Refresher
from refresher.graph.failures import classify_error
from refresher.graph.thread_limits import process_is_ending
from refresher.queries import Registry
from refresher.worker.celery_fixes.soft_limit import soft_limit

P = ParamSpec("P")

Resend: TypeAlias = Callable[[RefreshItem, int], None]
"""Sends an item to be tried again after this many seconds."""
Show: TypeAlias = Callable[[Sequence[RefreshItem], Sequence[Outcome], float], None]
"""Shows items, their outcomes and their duration in seconds to monitors."""

log: Final = logging.getLogger(__name__)

_HELD: Final = frozenset((RecordState.RUNNING.value, RecordState.RETRYING.value))


class InPlace:
    """Loads on the calling thread of a worker's process.

    Args:
        queries: the queries to load.
        refresher: returns the process's refresher with the dependencies of `in_place_deps`.
        resend: sends retries, which a worker runs.
        show: informs monitors; it may raise.
    """

    def __init__(self, queries: Registry, refresher: Callable[[], Refresher], resend: Resend, show: Show) -> None:
        self._queries, self._refresher, self._resend, self._show = queries, refresher, resend, show

    def has(self, key: CacheKey) -> bool:
        """Return whether this worker has registered the key's query."""
        return self._queries.find(key.query, key.version) is not None

    def check(self, key: CacheKey) -> None:
        """Check that a load around this read may wait for it; see `nesting.check`."""
        nesting.check(key)

    def load(self, wanted: Sequence[Wanted], timeout_seconds: float) -> list[InPlaceEnd]:
        """Load keys of one query, each under its own lease; see `LoadsInPlace`."""
        query = self._queries.find(wanted[0].key.query, wanted[0].key.version)
        size = (query and query.batch) or 1
        ends: list[InPlaceEnd] = []
        with soft_limit.in_place(), nesting.within((), timeout_seconds):
            for at in range(0, len(wanted), size):
                if nesting.left_seconds() > 0:
                    ends += self._load_together(wanted[at : at + size])
                else:
                    ends += [InPlaceEnd.DEFERRED] * len(wanted[at : at + size])
        return ends

    def _load_together(self, wanted: Sequence[Wanted]) -> list[InPlaceEnd]:
        items, began = [item_for(one.key, one.claim_number, RefreshReason.MISS) for one in wanted], monotonic_seconds()
        try:
            outcomes = none_failed(self._refresher().refresh_together(items))
        except nesting.OutOfTime:
            return [InPlaceEnd.DEFERRED] * len(wanted)
        except BaseException as error:
            interrupt = interrupt_of(error)
            if interrupt is None or interrupt is error:
                raise
            raise interrupt from None
        log.info("in place: %s", summary(outcomes))
        self._quietly("show", self._show, items, outcomes, monotonic_seconds() - began)
        return [self._end_of(outcome) for outcome in outcomes]

    def _end_of(self, outcome: Outcome) -> InPlaceEnd:
        if outcome.why == NO_BUDGET:
            return InPlaceEnd.DEFERRED
        if outcome.again is not None:
            self._quietly("retry", self._resend, outcome.again, outcome.pause_seconds)
        is_held = outcome.kind is OutcomeKind.SKIPPED and outcome.why in _HELD
        return InPlaceEnd.HELD if is_held else InPlaceEnd.ENDED

    def _quietly(self, what: str, call: Callable[P, None], *args: P.args, **options: P.kwargs) -> None:
        try:
            call(*args, **options)
        except Exception as error:  # noqa: BLE001 - whatever the broker raises: the value is there, or a reader claims anew
            log.warning("could not %s a load in place: %s", what, type(error).__name__)


def in_place_deps(deps: RefreshDeps) -> RefreshDeps:
    """Adapt a process's dependencies to its loads in place."""
    return replace(
        deps,
        is_in_place=True,
        hands_back=lambda error: not isinstance(error, CacheUnavailable),
        failure_of=_failure_of,
        # The load around it already has a share.
        share_of=lambda query, items: LoadShare() if nesting.is_in_load() else deps.share_of(query, items),
    )


def interrupt_of(error: BaseException) -> BaseException | None:
    """Return the interrupt of the calling thread that ended a load, or None if the load itself failed."""
    cause = error.__cause__ if isinstance(error, LoadFailed) and error.__cause__ is not None else error
    is_meant_for_load = isinstance(cause, Exception) or type(cause) is SystemExit
    is_interrupt = isinstance(cause, SoftTimeLimitExceeded) or not is_meant_for_load or process_is_ending()
    return cause if is_interrupt else None


def _failure_of(error: BaseException) -> LoadFailed | None:
    return None if interrupt_of(error) is not None else classify_error(error)
