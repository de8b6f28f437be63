"""One key that only fails, many that don't, and one worker process for all."""

from __future__ import annotations

import math
import time

from api_client import RefreshFailed
from tests.acceptance.conftest import System
from tests.support.waiting import eventually

FIRST_PAUSE_SECONDS, SPAN_SECONDS, OTHERS = 1.0, 14.0, 5


def test_a_permanently_failing_key_backs_off_exponentially_and_starves_no_other(system: System) -> None:
    system.start_worker(
        "-c", "1", CACHE_COOLING=f"{FIRST_PAUSE_SECONDS:g}s",
        REFRESHER_QUERIES="tests.support.scripted_queries,tests.support.failing_queries",
    )  # fmt: skip
    client = system.client()
    others = [{"key": f"k{number}"} for number in range(OTHERS)]
    for params in others:
        client.get("short_lived", params)
    kinds, began = set(), time.monotonic()

    def all_read() -> bool:
        try:
            client.get("poisoned", {"key": "poison"}, timeout=0.01)
        except RefreshFailed as error:
            kinds.add(error.kind)
        except TimeoutError:
            pass  # it is being loaded once more
        for params in others:
            client.get("short_lived", params)
        return time.monotonic() - began > SPAN_SECONDS

    eventually(all_read, "the span is over")
    loads, past_seconds = system.loads("poison"), time.monotonic() - began
    assert kinds == {"loader_error"}
    # The number that fits with pauses of ¾ to 1, 2, 4 … s. With pauses of one length it would be past_seconds.
    assert 3 <= loads <= 2 + math.log2(1 + past_seconds / (0.75 * FIRST_PAUSE_SECONDS))
    # Each read of a stale key triggers: the others get the worker's time that the failing key leaves.
    assert min(system.loads(params["key"]) for params in others) > loads
