"""Shares of the budgets: how a worker takes, awaits and gives them back. Redis' replies are scripted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest

from api_client.errors import CacheUnavailable
from api_client.protocol.budget import SHARE_SECONDS, Budget
from api_client.protocol.lease import AcquireReply, AcquireStatus, Call, RecordState
from api_client.protocol.messages import RefreshItem, RefreshReason
from refresher.errors import LoadFailed
from refresher.flow.budgets import MISS_PAUSE_SECONDS, NO_BUDGET, WAIT_SECONDS, Budgets, urgency_of
from refresher.flow.outcome import Outcome, OutcomeKind
from refresher.flow.put_back import MAX_PAUSE_SECONDS
from refresher.flow.refresh import Refresher
from refresher.flow.renewals import Renewable
from refresher.queries import Loaded, Registry, query
from tests.support.fake_refresher import ITEM, Worker, failing

MISS = msgspec.structs.replace(ITEM, reason=RefreshReason.MISS)
EARLY = msgspec.structs.replace(ITEM, reason=RefreshReason.EARLY)
GRANTED, REFUSED = 0.0, 0.0625


class BudgetedWorker(Worker):
    """A worker under a budget. ``grants``: the replies to the next shares; then all are granted."""

    def __init__(self, **budget: Any) -> None:
        super().__init__()
        self.grants: list[Any] = []
        self.kept: list[Renewable] = []
        self.waits: list[float] = []
        self.replies |= {"take_share": GRANTED, "release_share": True}
        self.budgets = Budgets(
            "cache", Budget(**(budget or {"rate": 100, "concurrency": 3})), self, self._keep, self, sleep=self._sleep,
            monotonic=lambda: self.now,
        )  # fmt: skip
        self.refresher = Refresher(self.settings, replace(self.deps, share_of=self.budgets.share_of))

    def run(self, call: Call[Any]) -> Any:
        if call.script == "take_share":
            self.replies["take_share"] = self.grants.pop(0) if self.grants else GRANTED
        return super().run(call)

    @contextmanager
    def _keep(self, held: Sequence[Renewable]) -> Iterator[None]:
        self.kept += held
        yield
        self.kept = [one for one in self.kept if one not in held]

    def waited_for_budget(self, query: str, *, seconds: float) -> None:
        self.waits.append(round(seconds, 3))

    def slept(self) -> float:
        return float(sum(entry[1] for entry in self.diary if entry[0] == "sleep"))

    def share_steps(self) -> list[str]:
        return [step for step in self.steps() if step in {"take_share", "release_share", "load", "acquire", "commit"}]

    def refunds(self) -> tuple[Any, ...]:
        return self.calls["release_share"].args[1:]

    def refused(self, item: RefreshItem = ITEM) -> Outcome:
        """Refresh while no share is granted."""
        self.grants = [REFUSED] * 1_000
        outcome = self.refresher.refresh(item)
        self.grants = []
        return outcome


@pytest.fixture
def worker() -> BudgetedWorker:
    return BudgetedWorker()


def test_a_share_is_taken_before_the_lease_and_given_back_with_the_commit(worker: BudgetedWorker) -> None:
    sent: list[list[str]] = []
    run_each = worker.run_each
    cast("Any", worker).run_each = lambda calls, **until: (
        sent.append([call.script for call in calls]) or run_each(calls, **until)
    )
    assert worker.refresher.refresh(ITEM).kind is OutcomeKind.COMMITTED
    assert worker.share_steps() == ["take_share", "acquire", "load", "commit", "release_share"]
    assert sent == [["acquire"], ["commit", "release_share"]], "one round trip more than without a budget"
    assert worker.refunds() == (0, 0)
    assert worker.waits == []
    assert worker.kept == []


def test_a_share_is_renewed_while_it_is_held_and_each_load_takes_a_new_one(worker: BudgetedWorker) -> None:
    names = []
    load = worker.load

    def seen(*args: Any) -> Any:
        (held,) = worker.kept
        assert (held.granted_seconds, held.lease_seconds) == (SHARE_SECONDS, SHARE_SECONDS)
        assert held.renewal().args[0] == worker.calls["take_share"].args[0]
        names.append(held.renewal().args[0])
        return load(*args)

    cast("Any", worker).load = seen
    worker.refresher.refresh(ITEM)
    worker.refresher.refresh(ITEM)
    assert len(set(names)) == 2


def test_without_a_budget_no_share_is_requested() -> None:
    worker = BudgetedWorker(rate=None)
    worker.refresher.refresh(ITEM)
    assert worker.share_steps() == ["acquire", "load", "commit"]


def test_a_query_s_own_budget_works_without_one_of_the_namespace() -> None:
    worker = BudgetedWorker(rate=None)
    query("q", ttl=300, grace=60, concurrency=2, rate=10, into=(own := Registry()))(lambda tx, n: n)
    found = own.find("q", 1)
    assert found.budget == Budget(10, 2)
    share = worker.budgets.share_of(found, [ITEM])
    assert share.take() == []
    assert worker.calls["take_share"].args[3:] == (0, 0, 0, 2, 100_000, 0)
    share.give_back()


def test_an_unregistered_query_takes_no_share(worker: BudgetedWorker) -> None:
    worker.refresher.refresh(RefreshItem(query="unknown"))
    assert "take_share" not in worker.calls


@pytest.mark.parametrize("skipped", ["held", "fresh"])
def test_a_skipped_load_is_not_charged_to_the_budget(skipped: str) -> None:
    status = AcquireStatus.HELD if skipped == "held" else AcquireStatus.ALREADY_FRESH
    paced = BudgetedWorker()
    paced.replies["acquire"] = AcquireReply(status, RecordState.RUNNING, 5.0, 0, 0, 0, 0, (), b"")
    assert paced.refresher.refresh(ITEM).kind is OutcomeKind.SKIPPED
    assert paced.share_steps() == ["take_share", "acquire", "release_share"]
    assert paced.refunds() == (10_000, 0)


def test_a_refused_share_is_waited_for(worker: BudgetedWorker) -> None:
    worker.grants = [0.2, 0.3, GRANTED]
    assert worker.refresher.refresh(ITEM).kind is OutcomeKind.COMMITTED
    assert worker.slept() == pytest.approx(0.2 + 0.25)
    assert worker.waits == [0.45]


def test_a_refresh_that_gets_no_share_in_time_is_requeued_unchanged(worker: BudgetedWorker) -> None:
    outcome = worker.refused(msgspec.structs.replace(ITEM, attempt=2, ticket="t"))
    assert (outcome.kind, outcome.why, outcome.attempts) == (OutcomeKind.RETRY, NO_BUDGET, 2)
    assert outcome.again == msgspec.structs.replace(ITEM, attempt=2, ticket="t")
    assert outcome.pause_seconds in {1, 2}
    assert set(worker.steps()) == {"take_share", "sleep", "skipped"}
    assert worker.diary[-1] == ("skipped", NO_BUDGET)
    assert worker.slept() == WAIT_SECONDS
    assert worker.kept == []


def test_the_pause_of_requeued_refreshes_grows_until_a_load_gets_a_share(worker: BudgetedWorker) -> None:
    assert {worker.refused().pause_seconds for _ in range(60)} == set(range(1, MAX_PAUSE_SECONDS + 1))
    worker.refresher.refresh(ITEM)
    assert worker.refused().pause_seconds <= 2, "begins anew with a load"


def test_a_requeued_refresh_with_a_waiting_reader_pauses_one_second(worker: BudgetedWorker) -> None:
    assert {worker.refused(MISS).pause_seconds for _ in range(6)} == {MISS_PAUSE_SECONDS}


def test_a_requeued_early_refresh_becomes_a_stale_one(worker: BudgetedWorker) -> None:
    again = worker.refused(EARLY).again
    assert again.reason is RefreshReason.STALE


def test_a_batch_is_as_urgent_as_its_most_urgent_refresh() -> None:
    assert urgency_of([EARLY, ITEM, MISS]).value == "miss"
    assert urgency_of([EARLY, ITEM]).value == "stale"
    assert urgency_of([EARLY, EARLY]).value == "early"
    for reason in (RefreshReason.MANUAL, RefreshReason.INVALIDATED):
        assert urgency_of([msgspec.structs.replace(ITEM, reason=reason)]).value == "stale"


def test_without_redis_there_is_no_share_and_no_load(worker: BudgetedWorker) -> None:
    worker.grants = [CacheUnavailable("down")]
    with pytest.raises(CacheUnavailable):
        worker.refresher.refresh(ITEM)
    assert worker.steps() == ["take_share"]


def test_a_share_that_cannot_be_given_back_changes_no_outcome(worker: BudgetedWorker) -> None:
    worker.replies["release_share"] = CacheUnavailable("down")
    assert worker.refresher.refresh(ITEM).kind is OutcomeKind.COMMITTED
    worker.loads.append(failing("syntax", transient=False))
    assert worker.refresher.refresh(ITEM).kind is OutcomeKind.FAILED


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit()])
def test_a_share_is_given_back_however_the_load_ends(worker: BudgetedWorker, error: BaseException) -> None:
    worker.loads.append(error)
    with pytest.raises(type(error)):
        worker.refresher.refresh(ITEM)
    assert worker.steps()[-1] == "release_share"
    assert worker.kept == []


def test_an_attempt_in_place_takes_a_share_of_its_own(worker: BudgetedWorker) -> None:
    worker.loads += [failing(), "value"]
    worker.u = 0.1
    assert worker.refresher.refresh(ITEM).kind is OutcomeKind.COMMITTED
    steps = ["take_share", "acquire", "load", "release_share", "take_share", "load", "commit", "release_share"]
    assert worker.share_steps() == steps


@pytest.mark.parametrize("refusal", [[REFUSED] * 20, [CacheUnavailable("down")]], ids=["no room", "no redis"])
def test_without_a_share_the_next_attempt_is_a_message_of_its_own(worker: BudgetedWorker, refusal: list[Any]) -> None:
    worker.loads += [failing(), "value"]
    worker.u = 0.1
    load = worker.load

    def then_full(*args: Any) -> Any:
        worker.grants = list(refusal)
        return load(*args)

    cast("Any", worker).load = then_full
    outcome = worker.refresher.refresh(ITEM)
    assert (outcome.kind, outcome.why) == (OutcomeKind.RETRY, "deadlock")
    assert outcome.again.attempt == 2
    assert worker.steps().count("load") == 1


class BatchWorker(BudgetedWorker):
    """A worker whose loader takes several calls, and fails while ``bad`` is among them."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self.bad, self.full_after = 0, 1_000

    def load(self, _query: Any, calls: Any, _previous: Any, bookmarks: Any, timeout_seconds: float) -> Any:
        self.diary.append(("load", len(calls)))
        self.sizes.append(len(calls))
        if len(self.sizes) >= self.full_after:
            self.grants = [REFUSED] * 1_000
        if any(call["n"] == self.bad for call in calls):
            raise LoadFailed("loader", "one of them", is_transient=False)
        return [Loaded("value", 1) for _ in calls]


def batch_of(size: int) -> list[RefreshItem]:
    return [msgspec.structs.replace(ITEM, params=f'{{"n":{n}}}') for n in range(1, size + 1)]


def ends_of(worker: BatchWorker) -> list[str]:
    return [str(end.end) if isinstance(end, Outcome) else "?" for end in worker.refresher.refresh_together(batch_of(4))]


def test_each_part_of_a_failed_batch_takes_a_share_of_its_own() -> None:
    worker = BatchWorker()
    worker.bad = 1
    assert ends_of(worker) == ["failed (loader)", "committed", "committed", "committed"]
    assert worker.sizes == [4, 2, 1, 1, 2]
    assert worker.steps().count("take_share") == worker.steps().count("release_share") == 5


def test_a_batch_is_divided_no_further_when_half_of_the_time_is_over() -> None:
    worker = BatchWorker()
    worker.bad = 1
    divided = worker.load

    def slow(*args: Any) -> Any:
        worker.now += worker.settings.budget_seconds / 5
        return divided(*args)

    cast("Any", worker).load = slow
    outcomes = worker.refresher.refresh_together(batch_of(4))
    assert worker.sizes == [4, 2, 1]
    assert [outcome.kind for outcome in outcomes if isinstance(outcome, Outcome)] == [
        OutcomeKind.FAILED, OutcomeKind.RETRY, OutcomeKind.RETRY, OutcomeKind.RETRY,
    ]  # fmt: skip


def test_an_unreachable_redis_is_tried_once_per_half_at_the_end_of_a_batch() -> None:
    worker = BatchWorker()
    worker.bad, worker.full_after = 4, 1
    worker.replies["retry"] = CacheUnavailable("away")
    outcomes = worker.refresher.refresh_together(batch_of(4))
    assert [type(outcome) for outcome in outcomes] == [CacheUnavailable] * 4
    assert worker.steps().count("retry") == 2, "once for each half"
