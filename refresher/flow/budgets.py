"""Budget shares of a worker process: one per load, from before its acquire to its commit.

::

    message ──▶ a share? ──▶ acquire ──▶ load ──▶ commit, and the share goes back in the same round trip
                   └─ none within a second: back into the queue with a pause; no lease, no attempt
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Final

import msgspec

from api_client.protocol.budget import LONGEST_PAUSE_SECONDS, Budget, Share, Urgency
from api_client.protocol.lease import Call
from api_client.protocol.messages import RefreshItem, RefreshReason
from api_client.transport.scripts import LeaseStepRunner
from refresher.flow.outcome import Outcome
from refresher.flow.ports import LoadShare, WorkerEvents
from refresher.flow.put_back import PutBack
from refresher.flow.renewals import HeldShare, Renewable
from refresher.queries import Query

NO_BUDGET: Final = "no_budget"
WAIT_SECONDS: Final = 1.0
"""Wait for a share, even if none can come in that time. A worker that put messages back at once would take the whole
queue into its memory, and readers, who go by the queue's length, would publish more."""
MISS_PAUSE_SECONDS: Final = 1


class Budgets:
    """The budgets of the namespace and of its queries. Thread-safe.

    Args:
        namespace: CACHE_NAMESPACE.
        of_all: the namespace's budget.
        steps: runs the calls.
        keep: renews shares while its block runs.
        events: hooks for waits, and for items that are put back.
        sleep, monotonic: the clock.
    """

    def __init__(
        self,
        namespace: str,
        of_all: Budget,
        steps: LeaseStepRunner,
        keep: Callable[[Sequence[Renewable]], AbstractContextManager[None]],
        events: WorkerEvents,
        *,
        sleep: Callable[[float], object],
        monotonic: Callable[[], float],
    ) -> None:
        self._namespace, self._of_all = namespace, of_all
        self.steps: LeaseStepRunner = steps
        self.keep: Callable[[Sequence[Renewable]], AbstractContextManager[None]] = keep
        self._events = events
        self._sleep, self._monotonic = sleep, monotonic
        self._put_back = PutBack(NO_BUDGET, events)

    def share_of(self, query: Query | None, items: Sequence[RefreshItem]) -> LoadShare:
        """Return the share for a load of items of one query; nothing is sent yet."""
        if query is None or not (self._of_all.is_bounded or query.budget.is_bounded):
            return LoadShare()
        return _BudgetShare(self, query, items)

    def granted(self, query: Query, urgency: Urgency) -> Share | None:
        """Take a share, waiting for it in place; return None if it was refused."""
        share = Share(self._namespace, query.name, uuid.uuid4().hex, self._of_all, query.budget)
        call, began = share.take(urgency), self._monotonic()
        wait_seconds = self.steps.run(call)
        if wait_seconds == 0:
            return share
        while wait_seconds > 0 and (left_seconds := began + WAIT_SECONDS - self._monotonic()) > 0:
            self._sleep(min(wait_seconds, LONGEST_PAUSE_SECONDS, left_seconds))
            wait_seconds = self.steps.run(call)
        self._events.waited_for_budget(query.name, seconds=self._monotonic() - began)
        return share if wait_seconds == 0 else None

    def begin(self, query: Query) -> None:
        """Record that a load of a query has its share."""
        self._put_back.begin(query.name)

    def put_back(self, items: Sequence[RefreshItem], urgency: Urgency) -> list[Outcome]:
        """Return the outcomes of items that were refused."""
        if urgency is Urgency.MISS:
            return self._put_back.outcomes(items, longest_seconds=MISS_PAUSE_SECONDS)
        # While stale keys use up the budget, an early refresh would otherwise wait until its key is stale, and on
        # forever, because its claim blocks all others.
        return self._put_back.outcomes([_no_longer_early(item) for item in items])


class _BudgetShare(LoadShare):
    def __init__(self, budgets: Budgets, query: Query, items: Sequence[RefreshItem]) -> None:
        self._budgets, self._query, self._items = budgets, query, items
        self._urgency = urgency_of(items)
        self._share: Share | None = None
        self._is_charged = False
        self._kept = ExitStack()

    def take(self) -> list[Outcome]:
        if not self.take_again():
            return self._budgets.put_back(self._items, self._urgency)
        self._budgets.begin(self._query)
        return []

    def take_again(self) -> bool:
        self.give_back()
        share = self._budgets.granted(self._query, self._urgency)
        if share is None:
            return False
        self._share, self._is_charged = share, False
        self._kept.enter_context(self._budgets.keep([HeldShare(share)]))
        return True

    def begin(self) -> None:
        self._is_charged = True

    def last_steps(self) -> list[Call[Any]]:
        share, self._share = self._share, None
        if share is None:
            return []
        self._kept.close()
        return [share.release(refund=not self._is_charged)]

    def give_back(self) -> None:
        if steps := self.last_steps():
            self._budgets.steps.run_each(steps)


def urgency_of(items: Sequence[RefreshItem]) -> Urgency:
    """Return the urgency of items that are loaded together, which is that of the most urgent one."""
    reasons = {item.reason for item in items}
    if RefreshReason.MISS in reasons:
        return Urgency.MISS
    return Urgency.EARLY if reasons == {RefreshReason.EARLY} else Urgency.STALE


def _no_longer_early(item: RefreshItem) -> RefreshItem:
    is_early = item.reason is RefreshReason.EARLY
    return msgspec.structs.replace(item, reason=RefreshReason.STALE) if is_early else item
