"""Guards of the refresh flow beside the lease: the events of each run, and a minimum of time for each load."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from api_client.protocol.keys import make_key
from api_client.protocol.messages import RefreshReason, item_for
from tests.contract.stepped_flow import SETTINGS, Flow
from tests.support.lease_invariants import Watch
from tests.support.lease_world import ClockedWorld


def a_flow(world: ClockedWorld, *loads: str, attempt: int = 1) -> Flow:
    key = make_key(SETTINGS.namespace, "flow", {"n": world.key.params["n"]}, 1)
    here = replace(world, key=key)
    item = item_for(key, here.claim("reader").number, RefreshReason.MISS)
    return Flow(here, Watch(), msgspec.structs.replace(item, attempt=attempt), loads, [])


@pytest.mark.parametrize(
    ("loads", "attempt", "recorded"),
    [
        (["value"], 1, [("acquired",), ("ended",)]),
        (["permanent"], 1, [("acquired",), ("failed", "syntax", 1), ("ended",)]),
        (["shutdown"], 1, [("acquired",), ("ended",)]),
        (["transient", "value"], 1, [("acquired",), ("retried", "network", 1), ("ended",)]),
        (["transient", "value"], 2, [("acquired",), ("retried", "network", 2), ("ended",), ("acquired",), ("ended",)]),
    ],
)  # fmt: skip
def test_each_run_emits_its_events_from_acquired_to_ended(
    clocked_world: ClockedWorld, loads: list[str], attempt: int, recorded: list[tuple[object, ...]]
) -> None:
    flow = a_flow(clocked_world, *loads, attempt=attempt)
    flow.go_on()
    assert flow.recorded.all == recorded


def test_a_skipped_message_is_not_reported_as_a_run(clocked_world: ClockedWorld) -> None:
    a_flow(clocked_world, "value").go_on()
    key = make_key(SETTINGS.namespace, "flow", {"n": clocked_world.key.params["n"]}, 1)
    late = Flow(replace(clocked_world, key=key), Watch(), item_for(key, 1, RefreshReason.MISS), [], [])
    late.go_on()
    assert (late.recorded.all, late.timeouts_seconds) == ([], [])


def test_a_load_s_timeout_is_the_rest_of_the_budget_and_never_zero(clocked_world: ClockedWorld) -> None:
    flow = a_flow(clocked_world, "transient", "value")
    while flow.pending != "pause":
        flow.step()
    clocked_world.pass_time(SETTINGS.budget_seconds + 1)  # the whole process stood still
    flow.go_on()
    longest = min(SETTINGS.transaction_timeout_seconds, SETTINGS.budget_seconds)
    assert flow.timeouts_seconds == [longest, 0.01]
