"""What the demo counts: histograms, tallies, and what the workers' events tell."""

from __future__ import annotations

import random
from dataclasses import fields

import pytest

from refresher.demo.state import Histogram, Tally
from refresher.demo.worker_events import SeenOutcome, WorkerCounts, parse_outcomes
from refresher.flow.outcome import Outcome, OutcomeKind


def histogram_of(*durations_seconds: float) -> Histogram:
    histogram = Histogram()
    for duration_seconds in durations_seconds:
        histogram.record(duration_seconds)
    return histogram


def test_quantiles_are_within_a_few_percent() -> None:
    draw = random.Random(1)  # noqa: S311 - durations, no secret
    durations = [draw.lognormvariate(-8, 1.5) for _ in range(5_000)]
    histogram = histogram_of(*durations)
    for share in (0.5, 0.99, 0.999):
        exact = sorted(durations)[int(share * len(durations)) - 1]
        assert histogram.quantile_seconds(share) == pytest.approx(exact, rel=0.05)
    assert histogram.longest_seconds == max(durations)
    assert histogram.count == 5_000


def test_a_quantile_is_never_beyond_the_longest_and_0_without_any() -> None:
    assert Histogram().quantile_seconds(0.99) == 0
    assert histogram_of(0.0).quantile_seconds(0.5) == 0
    assert histogram_of(1.0).quantile_seconds(0.99) == pytest.approx(1.0, rel=0.02)
    assert histogram_of(1.0).quantile_seconds(0.99) <= 1.0


def test_tallies_add_up_and_keep_the_most() -> None:
    total = Tally(fresh=3, stale=1, overdue_seconds=2.0, at_once=histogram_of(0.001))
    total.merge(Tally(fresh=4, failed=1, overdue_seconds=0.5, at_once=histogram_of(0.002), suppressed=2))
    assert (total.fresh, total.stale, total.failed, total.reads, total.spared) == (7, 1, 1, 9, 2)
    assert total.overdue_seconds == 2.0
    assert total.at_once.count == 2
    merged = Tally()
    merged.merge(total)
    assert all(getattr(merged, item.name) == getattr(total, item.name) for item in fields(Tally))


@pytest.mark.parametrize("kind", OutcomeKind)
@pytest.mark.parametrize("why", ["", "stale", "graph_unavailable"])
@pytest.mark.parametrize("token", [0, 1_795_000_000_000_000])
def test_an_outcome_is_read_back_from_its_text(kind: OutcomeKind, why: str, token: int) -> None:
    outcome = Outcome(kind, "friends_of.v-2", "5c25aa01bb02", why=why, token=token, delta_seconds=1.25, run_seconds=0.5)
    stored = kind in {OutcomeKind.COMMITTED, OutcomeKind.COMMITTED_AS_STALE}
    expected = SeenOutcome(kind, why, 1.25 if stored else 0.0, 0.5 if stored else 0.0)
    # Events carry the repr of a result, and an exception's type around its text.
    for text in (str(outcome), repr(str(outcome)), f"RetryLater({str(outcome)!r})"):
        assert list(parse_outcomes(text)) == [expected]


def test_several_outcomes_of_one_message_and_what_is_none() -> None:
    both = f"{Outcome(OutcomeKind.SKIPPED, 'a', 'ff')}; {Outcome(OutcomeKind.FAILED, 'b', 'ee', why='syntax')}"
    assert [seen.kind for seen in parse_outcomes(both)] == [OutcomeKind.SKIPPED, OutcomeKind.FAILED]
    assert list(parse_outcomes("'dropped: expected {\"v\": 1}'")) == []
    assert list(parse_outcomes("ConnectionError('refused')")) == []


def test_the_workers_events_are_counted() -> None:
    counts = WorkerCounts()
    done = Outcome(OutcomeKind.COMMITTED, "q", "ab", token=5, delta_seconds=0.2, run_seconds=0.1)
    late = Outcome(OutcomeKind.REJECTED, "q", "ab", why="superseded", token=6)
    counts.take({"type": "worker-online", "hostname": "one@demo"}, 1.0)
    for uuid in ("a", "b", "c"):
        counts.take({"type": "task-started", "uuid": uuid, "hostname": "one@demo"}, 2.0)
    assert len(counts.running) == 3
    counts.take({"type": "task-succeeded", "uuid": "a", "hostname": "one@demo", "result": repr(str(done))}, 3.0)
    counts.take({"type": "task-succeeded", "uuid": "b", "hostname": "one@demo", "result": repr(str(late))}, 4.0)
    counts.take({"type": "task-failed", "uuid": "c", "hostname": "one@demo", "exception": "OSError()"}, 5.0)
    dead = f"RefreshAbandoned('dead: {Outcome(OutcomeKind.FAILED, 'q', 'ab', why='syntax')}')"
    counts.take({"type": "task-failed", "uuid": "d", "hostname": "one@demo", "exception": dead}, 6.0)
    assert not counts.running
    assert (counts.committed, counts.loads, counts.given_up) == (1, 3, 2)
    assert counts.rejected_for == {"superseded": 1}
    assert counts.online_at == {"one@demo": 1.0}
    assert counts.first_commit_at == {"one@demo": 3.0}
    assert counts.delta_seconds == pytest.approx(0.2)
