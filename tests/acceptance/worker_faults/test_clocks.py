"""Clocks that are an hour off, of Redis, also set under load, of a worker, of a reader; and a lease, as time passes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import ROOT
from tests.acceptance.worker_faults.conftest import PATIENT_SETTINGS, WITHIN_LEASE_SECONDS, World
from tests.acceptance.worker_faults.traffic import Traffic
from tests.support.history import Happened
from tests.support.movable_clock import MovableClock
from tests.support.recording_proxy import StopPoint
from tests.support.versioned_queries import VERSIONED
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("patient_publishers")

HOUR_SECONDS = 3_600
RENEWED_LEASE_SECONDS = 3.0


@pytest.fixture(scope="module")
def redis_clock(tmp_path_factory: pytest.TempPathFactory) -> MovableClock:
    return MovableClock(tmp_path_factory.mktemp("clock"))


@pytest.fixture(scope="module")
def cache_options(redis_clock: MovableClock) -> dict[str, Any]:
    return {"binary": redis_clock.redis_program()}


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return PATIENT_SETTINGS


@pytest.fixture
def clock(redis_clock: MovableClock, world: World) -> Iterator[MovableClock]:
    """The clock of the cache's Redis, which is right again after the case."""
    yield redis_clock
    world.history.note(Happened.CLOCK_MOVED)
    redis_clock.now_us = 0
    redis_clock.goes_off_by(0)


@pytest.mark.failure("W35")
@pytest.mark.parametrize("shift_seconds", [-HOUR_SECONDS, HOUR_SECONDS], ids=["back", "forward"])
def test_keys_are_fresh_again_after_the_redis_clock_is_set_under_load(
    world: World, clock: MovableClock, shift_seconds: int
) -> None:
    key = world.stale_key()
    with Traffic(world) as traffic:
        traffic.goes_on_for(5)
        world.start_held_load(key)
        world.history.note(Happened.CLOCK_MOVED)
        clock.goes_off_by(shift_seconds)
        traffic.goes_on_for(10)
        world.let_go(key)
    world.verify(within_seconds=WITHIN_LEASE_SECONDS)


@pytest.mark.failure("W36")
@pytest.mark.parametrize("shift_seconds", [-HOUR_SECONDS, HOUR_SECONDS], ids=["behind", "ahead"])
def test_a_worker_and_a_reader_with_a_wrong_clock_cause_no_stampede(
    world: World, tmp_path: Path, stack: ExitStack, shift_seconds: int
) -> None:
    wrong = MovableClock(tmp_path)
    wrong.goes_off_by(shift_seconds)
    world.ends_workers()
    world.worker(**wrong.env)
    with Traffic(world) as traffic:
        reader = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-m", "tests.support.long_running_reader", VERSIONED, traffic.keys[0]],
                env=world.parts.env | wrong.env,
                cwd=ROOT,
            )
        )
        stack.callback(reader.kill)
        traffic.goes_on_for(30)
    loads = len(world.loads(traffic.keys[0]))
    world.verify(within_seconds=WITHIN_LEASE_SECONDS)
    world.ends_workers()
    assert loads < 35  # no stampede: one load per invalidation, and not one per read of the reader's


@pytest.mark.failure("W15")
def test_a_lease_is_renewed_for_as_long_as_its_load_takes_though_a_reply_is_lost(
    world: World, clock: MovableClock
) -> None:
    world.ends_workers()
    world.worker(STAMPEDE_LOCK_TIMEOUT_MS=f"{RENEWED_LEASE_SECONDS * 1000:.0f}")
    key = world.stale_key()

    def renewals() -> int:
        return len(world.history.exchanges("renew", world.tag(key)))

    world.hold(key)
    lost = world.cache_proxy.loses("renew", StopPoint.REPLY, key=world.tag(key))
    world.history.note(Happened.CLOCK_MOVED)
    clock.now_us = world.parts.now_us()
    world.read(key)
    lost.wait()
    for _ in range(3):
        # Only then does time pass for Redis: a busy machine may renew late. The first may have been sent before.
        before = renewals()
        eventually(lambda before=before: renewals() > before + 1, "it goes on renewing")
        clock.now_us += round(1e6 * RENEWED_LEASE_SECONDS * 2 / 3)
        world.read(key)
    assert len(world.loads(key)) == 2, "no reader triggers another load"
    world.let_go(key)
    # Seen without a read: to a reader that has not looked at the set clock yet, the value is of the future, and stale.
    eventually(lambda: world.runs(key) == ["committed", "committed"], "it has committed")
    world.history.note(Happened.CLOCK_MOVED)
    clock.now_us = 0
    world.verify(within_seconds=WITHIN_LEASE_SECONDS)
    world.ends_workers()
