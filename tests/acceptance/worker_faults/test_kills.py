"""kill -9 of a worker, and of a child of its pool, at each moment of a refresh; SIGSTOP; a killed reader."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial

import pytest

from tests.acceptance.conftest import ROOT
from tests.acceptance.worker_faults.conftest import (
    PATIENT_SETTINGS,
    REJECTED,
    REPUBLISH_SECONDS,
    SLACK_SECONDS,
    WITHIN_LEASE_SECONDS,
    WITHIN_QUEUE_TTL_SECONDS,
    World,
    kill,
    stopped,
)
from tests.support.recording_proxy import StopPoint
from tests.support.timing import promptly
from tests.support.versioned_queries import VERSIONED
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("patient_publishers")


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return PATIENT_SETTINGS


@contextmanager
def before_acquire(world: World, key: str) -> Iterator[int]:
    """Yield the pool's process that holds the message, and has not reached Redis."""
    with world.cache_proxy.stopping("acquire", StopPoint.REQUEST, key=world.tag(key), drops=True) as stop:
        world.read(key)
        yield int(stop.wait().args[6].rpartition(b":")[2])


@contextmanager
def while_loading(world: World, key: str) -> Iterator[int]:
    world.start_held_load(key)
    yield world.loads(key)[-1]
    world.let_go(key)


@contextmanager
def at_commit(point: StopPoint, world: World, key: str) -> Iterator[int]:
    with world.cache_proxy.stopping("commit", point, key=world.tag(key), drops=True) as stop:
        world.read(key)
        stop.wait()
        yield world.loads(key)[-1]


MOMENTS: dict[str, Callable[[World, str], AbstractContextManager[int]]] = {
    "before_acquire": before_acquire,
    "while_loading": while_loading,
    "before_commit": partial(at_commit, StopPoint.REQUEST),
    "after_commit": partial(at_commit, StopPoint.REPLY),
}
INTERRUPTING = {"while_loading", "before_commit"}
"""Those at which a killed process has begun a run that it can't end."""


def runs_of(moment: str, end: str) -> list[str]:
    """Return how the runs of a key end; ``end`` is that of one whose process was killed."""
    return ["committed", end, "committed"] if moment in INTERRUPTING else ["committed", "committed"]


@pytest.mark.promise("Protocol", "I4: a key whose worker was killed is refreshed by another")
@pytest.mark.failure("W1", "W3", "W4")
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_worker_killed_at_any_moment_leaves_the_key_to_the_next_one(world: World, moment: str) -> None:
    key = world.stale_key()
    with MOMENTS[moment](world, key):
        world.worker().kill()
    if moment in INTERRUPTING:
        world.let_lapse(key)
    world.worker()
    world.verify(
        within_seconds=WITHIN_QUEUE_TTL_SECONDS if moment == "before_acquire" else WITHIN_LEASE_SECONDS,
        killed=True,
    )
    assert world.runs(key) == runs_of(moment, "expired")


@pytest.mark.failure("W2", "W3", "W4")
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_child_killed_at_any_moment_leaves_the_key_to_the_next_one(world: World, moment: str) -> None:
    key = world.stale_key()
    worker = world.worker()
    with MOMENTS[moment](world, key) as pid:
        kill(pid)
    world.verify(within_seconds=WITHIN_LEASE_SECONDS, killed=True)
    # Its main process ends the run for it.
    assert world.runs(key) == runs_of(moment, "retried (worker_lost)")
    assert worker.poll() is None


@pytest.mark.promise("Protocol", "I1: an overtaken worker process stores nothing")
@pytest.mark.failure("W5")
def test_a_worker_stopped_past_its_lease_writes_nothing_over_the_newer_value(world: World) -> None:
    key = world.stale_key()
    with while_loading(world, key), stopped(world.worker()):
        world.add_worker()
        world.let_lapse(key)
        promptly(lambda: world.read(key) and len(world.loads(key)) == 3, "another one loads", WITHIN_LEASE_SECONDS)
        world.write(key)  # after the stopped load has read
        world.let_go(key)
        eventually(lambda: world.is_fresh(key), "its value is there")
    # Its message may be delivered to the other worker, and be acknowledged, before it goes on.
    eventually(lambda: world.runs(key)[1] in REJECTED, "what it writes is rejected")
    world.verify(within_seconds=WITHIN_LEASE_SECONDS)
    world.workers.pop().kill()


@pytest.mark.failure("W6")
def test_a_reader_killed_between_claim_and_publish_delays_others_until_a_republication(
    world: World, stack: ExitStack
) -> None:
    key = world.stale_key()
    command = [sys.executable, "-m", "tests.support.long_running_reader", VERSIONED, key]
    with world.cache_proxy.stopping("claim", StopPoint.REPLY, key=world.tag(key), drops=True) as stop:
        reader = stack.enter_context(subprocess.Popen(command, env=world.parts.env, cwd=ROOT))
        stack.callback(reader.kill)
        stop.wait()
        kill(reader.pid)
    world.verify(within_seconds=REPUBLISH_SECONDS + 2 + SLACK_SECONDS)
    assert world.claims(key) == ["committed", "committed"]  # the dead reader's own claim was published by another
