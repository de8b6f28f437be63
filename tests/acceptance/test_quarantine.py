"""One key that only fails, many that don't, and one worker process for all."""

from __future__ import annotations

import math
import time

from api_client import RefreshFailed
from tests.acceptance.conftest import System
from tests.support.waiting import eventually

FIRST_PAUSE_SECONDS, SPAN_SECONDS, OTHERS = 1.0, 14.0, 5


def test_a_poisoned_key_is_loaded_less_and_less_and_starves_nobody(system: System) -> None:
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
    # Pauses of ¾ to 1, 2, 4 … s: so many fit. With pauses of one length it would be past_seconds of them.
    assert 3 <= loads <= 2 + math.log2(1 + past_seconds / (0.75 * FIRST_PAUSE_SECONDS))
    # Each read of a stale one asks: what the poison leaves of the worker's time is theirs.
    assert min(system.loads(params["key"]) for params in others) > loads
