"""Counts of the refresh flow: each run from its begin to its end, and a retry once it is certain."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.fake_refresher import ACQUIRED, ITEM, NOW_US, Worker, failing, interrupt_first_acquire


class Counted(Worker):
    """A worker whose diary contains these events, too."""

    def acquired(self, query: str) -> None:
        self.diary.append(("acquired", query))

    def ended(self, query: str) -> None:
        self.diary.append(("ended", query))

    def retried(self, query: str, *, kind: str, attempt: int, pause_seconds: float) -> None:
        self.diary.append(("retried", kind, attempt, pause_seconds))


@pytest.mark.parametrize(
    ("load", "steps"),
    [
        ("value", ["commit", "committed"]),
        (failing("syntax", transient=False), ["fail", "failed", "bury"]),
        (KeyboardInterrupt(), ["hand_back", "publish"]),
    ],
    ids=["committed", "abandoned", "interrupted"],
)
def test_a_run_is_counted_from_acquire_to_end_however_it_ends(load: object, steps: list[str]) -> None:
    worker = Counted()
    worker.loads.append(load)
    try:
        worker.refresher.refresh(ITEM)
    except KeyboardInterrupt:
        assert isinstance(load, KeyboardInterrupt)
    recorded = [step for step in worker.steps() if step not in {"hold", "let go"}]
    assert recorded == ["acquire", "acquired", "load", *steps, "ended"]


def test_a_retry_is_counted_once_its_record_is_stored_and_in_place_when_its_pause_begins() -> None:
    worker = Counted(retry_backoff=10)
    worker.loads.extend([failing(), failing()])
    outcome = worker.refresher.refresh(ITEM)
    assert outcome.again is not None
    recorded = [entry for entry in worker.diary if entry[0] in {"retried", "sleep", "retry"}]
    assert recorded == [("retried", "deadlock", 1, 0.5), ("sleep", 0.5), ("retry",), ("retried", "deadlock", 2, 5)]


@pytest.mark.parametrize(("attempts", "counted"), [(2, 2), (0, 1)], ids=["third", "invalidated since"])
def test_the_attempt_of_a_run_that_was_taken_over_is_counted_by_its_successor(attempts: int, counted: int) -> None:
    worker = Counted()
    worker.replies["acquire"] = replace(ACQUIRED, attempts=attempts, has_overtaken=True)
    worker.refresher.refresh(ITEM)
    assert worker.steps()[:3] == ["acquire", "retried", "acquired"]
    assert ("retried", "taken_over", counted, 0.0) in worker.diary


def test_a_taken_over_run_without_another_load_is_counted_only_as_failed() -> None:
    worker = Counted(retry_max=0)
    worker.replies["acquire"] = replace(ACQUIRED, attempts=1, has_overtaken=True)
    worker.refresher.refresh(ITEM)
    recorded = [entry for entry in worker.diary if entry[0] in {"retried", "failed"}]
    assert recorded == [("failed", "taken_over", 1)]


def test_a_claim_from_after_the_acquire_makes_no_negative_delta() -> None:
    worker = Counted()
    worker.load_seconds = 0.0
    worker.replies["acquire"] = replace(ACQUIRED, claimed_at_us=NOW_US + 10**9)
    assert worker.refresher.refresh(ITEM).delta_seconds == 0.0


def test_a_run_that_is_handed_back_while_it_is_acquired_counts_the_one_that_it_took_over() -> None:
    worker = Counted()
    worker.replies["acquire"] = replace(ACQUIRED, has_overtaken=True, attempts=2)
    interrupt_first_acquire(worker, SystemExit())
    with pytest.raises(SystemExit):
        worker.refresher.refresh(ITEM)
    assert worker.steps() == ["acquire", "acquire", "retried", "hand_back", "publish"]
