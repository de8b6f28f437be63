"""Fuzzing: the same inputs in every run; FUZZ_EXAMPLES sets their number, 200,000 per decoder in `make test-long`."""

from __future__ import annotations

import logging
import os
import resource
import time
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.fuzz.mutation import Mutator
from tests.support.requirements import IS_LONG
from tests.support.waiting import MAX_WAIT_SECONDS

SHORT, LONG = 4_000, 200_000
INPUTS: Final = int(os.environ.get("FUZZ_EXAMPLES") or (LONG if IS_LONG else SHORT))
BATCH: Final = 1_000
TIMEOUT_SECONDS: Final = 5 * MAX_WAIT_SECONDS + INPUTS // 200
# Generous: an input that takes milliseconds here must not take minutes on any machine.
MAX_SECONDS_PER_INPUT: Final = 2.0
MAX_GROWTH_KIB: Final = 512 * 1024

Feed = Callable[[Mutator], object]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Disable logging: it is not tested here, and would take most of the time."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="session")
def fuzz() -> Callable[[Feed], None]:
    """Feed a function with a mutator, `INPUTS` times, from seeds that Hypothesis draws; each call in bounded time."""

    def run(feed: Feed) -> None:
        @settings(
            max_examples=max(1, INPUTS // BATCH), deadline=None, derandomize=True, database=None,
            phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(st.integers(0, 2**64 - 1))
        def batch(seed: int) -> None:
            mutator = Mutator(seed)
            for _ in range(min(BATCH, INPUTS)):
                began = time.thread_time()
                feed(mutator)
                assert time.thread_time() - began < MAX_SECONDS_PER_INPUT

        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        batch()
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MAX_GROWTH_KIB

    return run
