"""The classic strategies as sequences of steps: what each does with what it finds, without any Redis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.apparatus.servers import Servers
from benchmarks.stampede.config import Config
from benchmarks.stampede.recorder import CURRENT_READ, Mark, ReadRecord
from benchmarks.stampede.strategies.classic import (
    Fetch,
    Found,
    Lock,
    Locked,
    Look,
    Pause,
    Recompute,
    Step,
    StepStrategy,
    Store,
    Stored,
    Unlock,
    XFetch,
    XLocked,
    refreshes_early,
)

CONFIG = Config(Servers("", "", "", "", "", "bench"), 20.0, 0.5, 5.0, beta=1.0, rnd_precision=0)
OLD, NEW = Stored({"made": "before"}, 0.5), Stored({"made": "now"}, 0.5)
FRESH, DUE = Found(OLD, math.inf), Found(OLD, 0.0)
"""So far from its expiry that no draw refreshes, and so near that all do."""


@pytest.fixture
def read_record() -> Iterator[ReadRecord]:
    read_record = ReadRecord()
    token = CURRENT_READ.set(read_record)
    yield read_record
    CURRENT_READ.reset(token)


def scenarios_to_run(
    strategy: type[StepStrategy], replies: Mapping[type[Step], list[Any]]
) -> tuple[list[type[Step]], Any]:
    """Return the steps of one read, and its value; each step is answered by the next reply of its kind, or None."""
    left = {kind: list(replies) for kind, replies in replies.items()}
    steps, reply, taken = strategy(CONFIG, "lane").steps(), None, []
    while True:
        try:
            step = steps.send(reply)
        except StopIteration as end:
            return taken, end.value
        taken.append(type(step))
        reply = left[type(step)].pop(0) if type(step) in left else None


@pytest.mark.parametrize("strategy", [Fetch, Locked, XFetch, XLocked])
def test_a_hit_is_one_look(strategy: type[StepStrategy], read_record: ReadRecord) -> None:
    assert scenarios_to_run(strategy, {Look: [FRESH]}) == ([Look], OLD.value)
    assert read_record.marks == Mark(0)


@pytest.mark.parametrize("strategy", [Fetch, XFetch])
def test_without_a_lock_a_miss_recomputes(strategy: type[StepStrategy], read_record: ReadRecord) -> None:
    assert scenarios_to_run(strategy, {Look: [None], Recompute: [NEW]}) == ([Look, Recompute, Store], NEW.value)
    assert read_record.marks == Mark.MISS


@pytest.mark.parametrize("strategy", [Locked, XLocked])
def test_who_gets_the_lock_looks_again_recomputes_and_gives_it_back(
    strategy: type[StepStrategy], read_record: ReadRecord
) -> None:
    taken, value = scenarios_to_run(strategy, {Look: [None, None], Lock: [True], Recompute: [NEW]})
    assert (taken, value) == ([Look, Lock, Look, Recompute, Store, Unlock], NEW.value)
    taken, value = scenarios_to_run(strategy, {Look: [None, FRESH], Lock: [True]})
    assert (taken, value) == ([Look, Lock, Look, Unlock], OLD.value)
    assert read_record.marks == Mark.MISS


@pytest.mark.parametrize("strategy", [Locked, XLocked])
def test_who_does_not_get_the_lock_waits_and_looks_again(strategy: type[StepStrategy], read_record: ReadRecord) -> None:
    taken, value = scenarios_to_run(strategy, {Look: [None, None, FRESH], Lock: [False, False]})
    assert (taken, value) == ([Look, Lock, Pause, Look, Lock, Pause, Look], OLD.value)
    assert read_record.marks == Mark.MISS | Mark.CONTENDED


def test_xfetch_recomputes_early(read_record: ReadRecord) -> None:
    assert scenarios_to_run(XFetch, {Look: [DUE], Recompute: [NEW]}) == ([Look, Recompute, Store], NEW.value)
    assert read_record.marks == Mark.EARLY


def test_xlocked_recomputes_early_under_the_lock_or_ducks_out(read_record: ReadRecord) -> None:
    taken, value = scenarios_to_run(XLocked, {Look: [DUE], Lock: [True], Recompute: [NEW]})
    assert (taken, value) == ([Look, Lock, Recompute, Store, Unlock], NEW.value)
    assert read_record.marks == Mark.EARLY
    assert scenarios_to_run(XLocked, {Look: [DUE], Lock: [False]}) == ([Look, Lock], OLD.value)
    assert read_record.marks == Mark.EARLY | Mark.DUCKED | Mark.CONTENDED


POSITIVE = st.floats(min_value=1e-3, max_value=1e3)


@given(left=st.floats(min_value=1e-6, max_value=1e3), delta=POSITIVE, beta=POSITIVE)
def test_the_draw_that_decides_is_that_of_the_formula(left: float, delta: float, beta: float) -> None:
    """P(early) = exp(−left / (δβ)): a draw below it recomputes, one above it does not."""
    edge = math.exp(-left / (delta * beta))
    if edge > 1e-300:
        assert refreshes_early(left, delta, beta, edge * (1 - 1e-9))
    if edge < 1 - 1e-6:
        assert not refreshes_early(left, delta, beta, min(1.0, edge * (1 + 1e-9) + 1e-300))
