"""The checker must see a broken promise: otherwise the demo's exit code means nothing."""

from __future__ import annotations

import pytest

from refresher.checker.oracle import Checker, Invalidated, Observation

SOFT = Invalidated("Ada", version=3, generation=100, hard=False, returned_at=50.0)
HARD = Invalidated("Ada", version=3, generation=100, hard=True, returned_at=50.0)


def seen(token: int, version: int, *, fresh: bool, began: float) -> Observation:
    return Observation("Ada", token, version, fresh, began)


@pytest.mark.parametrize(
    ("done", "observation", "words"),
    [
        (SOFT, seen(101, 2, fresh=True, began=60), "has version 2 where 3 had been written"),
        (SOFT, seen(101, 2, fresh=False, began=40), "has version 2 where 3 had been written"),
        (SOFT, seen(99, 2, fresh=True, began=50.5), "began 0.500 s after invalidation 100 got the value 99"),
        (HARD, seen(99, 2, fresh=False, began=51), "although it was gone"),
        (HARD, seen(99, 2, fresh=True, began=51), "as fresh"),
    ],
)
@pytest.mark.parametrize("seen_first", [True, False])
def test_a_broken_promise_is_reported_once(
    done: Invalidated, observation: Observation, words: str, seen_first: bool
) -> None:
    checker = Checker("profile")
    if seen_first:
        checker.observe(observation)
        checker.invalidated(done)
    else:
        checker.invalidated(done)
        checker.observe(observation)
    checker.observe(observation)
    assert len(checker.broken) == 1
    assert words in checker.broken[0]


@pytest.mark.parametrize(
    ("done", "observation"),
    [
        (SOFT, seen(101, 3, fresh=True, began=60)),
        (SOFT, seen(101, 4, fresh=True, began=60)),
        (SOFT, seen(99, 2, fresh=False, began=60)),  # stale, and marked as such
        (SOFT, seen(99, 2, fresh=True, began=49.9)),  # began before the invalidation had returned
        (HARD, seen(99, 2, fresh=False, began=49.9)),
        (HARD, Observation("Grace", 99, 0, fresh=True, last_began=60)),
    ],
)
def test_an_allowed_observation_is_not_reported(done: Invalidated, observation: Observation) -> None:
    checker = Checker("profile")
    checker.observe(observation)
    checker.invalidated(done)
    assert checker.broken == []


def test_of_equal_observations_the_latest_counts() -> None:
    checker = Checker("profile")
    checker.invalidated(SOFT)
    for began in (40.0, 60.0, 45.0):
        checker.observe(seen(99, 2, fresh=True, began=began))
    assert len(checker.broken) == 1
