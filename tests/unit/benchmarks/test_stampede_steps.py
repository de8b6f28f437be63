"""The classic strategies as sequences of steps: what each does with what it finds, without any Redis."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.apparatus.loops import run_on_thread
from benchmarks.apparatus.servers import Servers
from benchmarks.stampede.config import Config
from benchmarks.stampede.recorder import CURRENT_READ, Mark, ReadRecord
from benchmarks.stampede.strategies.classic import (
    ClassicStrategy,
    Fetch,
    Found,
    Locked,
    Stored,
    XFetch,
    XLocked,
    refreshes_early,
)

CONFIG = Config(Servers("", "", "", "", "", "bench"), 20.0, 0.5, 5.0, beta=1.0, rnd_precision=0)
OLD, NEW = Stored({"made": "before"}, 0.5), {"made": "now"}
FRESH, DUE = Found(OLD, math.inf), Found(OLD, 0.0)
"""So far from its expiry that no draw refreshes, and so near that all do."""


@pytest.fixture
def read_record() -> Iterator[ReadRecord]:
    read_record = ReadRecord()
    token = CURRENT_READ.set(read_record)
    yield read_record
    CURRENT_READ.reset(token)


class ScriptedKey:
    """Answers each step by the next reply of its kind, or None, and records which were taken."""

    def __init__(self, **replies: list[Any]) -> None:
        self._replies = replies
        self.taken: list[str] = []

    def __getattr__(self, name: str) -> Any:
        async def step() -> Any:
            self.taken.append(name)
            return self._replies[name].pop(0) if name in self._replies else None

        return step


def taken_by(strategy: type[ClassicStrategy], **replies: list[Any]) -> tuple[str, Any]:
    """Return the steps of one read, and its value."""
    key: Any = ScriptedKey(**replies)
    value = run_on_thread(strategy(CONFIG, "variant").read(key))
    return " ".join(key.taken), value


@pytest.mark.parametrize("strategy", [Fetch, Locked, XFetch, XLocked])
def test_a_hit_is_one_look(strategy: type[ClassicStrategy], read_record: ReadRecord) -> None:
    assert taken_by(strategy, look=[FRESH]) == ("look", OLD.value)
    assert read_record.marks == Mark(0)


@pytest.mark.parametrize("strategy", [Fetch, XFetch])
def test_without_a_lock_a_miss_recomputes(strategy: type[ClassicStrategy], read_record: ReadRecord) -> None:
    assert taken_by(strategy, look=[None], recompute=[NEW]) == ("look recompute", NEW)
    assert read_record.marks == Mark.MISS


@pytest.mark.parametrize("strategy", [Locked, XLocked])
def test_who_gets_the_lock_looks_again_recomputes_and_gives_it_back(
    strategy: type[ClassicStrategy], read_record: ReadRecord
) -> None:
    taken = taken_by(strategy, look=[None, None], lock=[True], recompute=[NEW])
    assert taken == ("look lock look recompute unlock", NEW)
    assert taken_by(strategy, look=[None, FRESH], lock=[True]) == ("look lock look unlock", OLD.value)
    assert read_record.marks == Mark.MISS


@pytest.mark.parametrize("strategy", [Locked, XLocked])
def test_who_does_not_get_the_lock_waits_and_looks_again(
    strategy: type[ClassicStrategy], read_record: ReadRecord
) -> None:
    taken = taken_by(strategy, look=[None, None, FRESH], lock=[False, False])
    assert taken == ("look lock pause look lock pause look", OLD.value)
    assert read_record.marks == Mark.MISS | Mark.CONTENDED


def test_xfetch_recomputes_early(read_record: ReadRecord) -> None:
    assert taken_by(XFetch, look=[DUE], recompute=[NEW]) == ("look recompute", NEW)
    assert read_record.marks == Mark.EARLY


def test_xlocked_recomputes_early_under_the_lock_or_ducks_out(read_record: ReadRecord) -> None:
    assert taken_by(XLocked, look=[DUE], lock=[True], recompute=[NEW]) == ("look lock recompute unlock", NEW)
    assert read_record.marks == Mark.EARLY
    assert taken_by(XLocked, look=[DUE], lock=[False]) == ("look lock", OLD.value)
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
