"""Messages that a worker took over a lost connection to the broker: none waits for the visibility timeout."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from api_client.config.broker import MUTEX_SECONDS, RESTORE_SECONDS
from refresher import WorkerSettings
from tests.acceptance.worker_faults.conftest import LONG_LEASE, SETTINGS, STEADY_CACHE, WITHIN_QUEUE_TTL_SECONDS, World
from tests.acceptance.worker_faults.traffic import Traffic
from tests.support.recording_proxy import StopPoint
from tests.support.requirements import IS_LONG
from tests.support.timing import promptly
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

KILLS = 40 if IS_LONG else 12
SLOTS = 3


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return SETTINGS | STEADY_CACHE | LONG_LEASE


@pytest.fixture(autouse=True)
def _worker(world: World) -> None:
    """A worker that has a slot for another load of the query while one is held."""
    world.worker("-c", str(SLOTS))


def visibility_seconds(world: World) -> float:
    return WorkerSettings.from_env(world.parts.env).visibility_timeout_seconds


def is_acknowledged(world: World) -> bool:
    return not world.broker.exists("unacked", "unacked_index", "cache.refresh", "cache.refresh-miss")


def consumes(world: World) -> None:
    """Check that the worker is connected: it takes a new message."""
    key = world.stale_key()
    world.read(key)
    promptly(lambda: world.is_fresh(key), "it takes messages again", WITHIN_QUEUE_TTL_SECONDS)


def held_load(world: World) -> str:
    """Return a key whose load is running, and whose message is not acknowledged."""
    key = world.stale_key()
    eventually(lambda: is_acknowledged(world), "nothing else is under way")
    world.hold(key)
    before = len(world.loads(key))

    def is_loading() -> bool:
        world.read(key)  # repeatedly: on a busy machine a publication may time out
        return len(world.loads(key)) > before

    eventually(is_loading, "it loads")
    eventually(lambda: world.broker.hlen("unacked") == 1, "its message alone is under way")
    return key


@pytest.mark.failure("W22")
@pytest.mark.parametrize("ends", ["while_disconnected", "after_reconnecting"])
def test_the_message_of_a_load_that_outlives_its_connection_is_acknowledged(world: World, ends: str) -> None:
    assert visibility_seconds(world) > 2 * WITHIN_QUEUE_TTL_SECONDS
    key = held_load(world)
    loads = len(world.loads(key))
    if ends == "while_disconnected":
        world.broker_proxy.refuses()
        world.let_go(key)
        eventually(lambda: world.runs(key)[-1:] == ["committed"], "it commits without a broker")
        world.broker_proxy.passes()
    else:
        world.broker_proxy.cuts()
        consumes(world)
        eventually(lambda: world.broker.hlen("unacked") == 1, "only the first is under way")
        world.let_go(key)
    eventually(lambda: is_acknowledged(world), "its message is acknowledged")
    assert len(world.loads(key)) == loads
    world.verify(within_seconds=WITHIN_QUEUE_TTL_SECONDS)


@pytest.mark.failure("W22")
def test_a_message_awaiting_its_retry_is_requeued_at_once_when_its_connection_is_lost(world: World) -> None:
    key = world.stale_key()
    world.control.set("failing", 100)
    eventually(lambda: world.read(key) and world.broker.hlen("unacked") == 1, "its retry waits in the worker")
    eventually(lambda: len(world.loads(key)) >= 3, "it was tried again")
    world.broker_proxy.cuts()
    world.control.delete("failing")
    promptly(lambda: world.is_fresh(key), "it is loaded", WITHIN_QUEUE_TTL_SECONDS)
    eventually(lambda: is_acknowledged(world), "all messages are acknowledged")
    world.verify(within_seconds=WITHIN_QUEUE_TTL_SECONDS)


@pytest.mark.failure("W20")
def test_lost_acknowledgements_keep_no_slot_of_a_worker(world: World) -> None:
    def lost() -> int:
        return world.worker().log_file.read_text().count("could not be acknowledged")

    for number in range(lost() + 1, lost() + SLOTS + 1):
        key = world.stale_key()
        with world.broker_proxy.stopping("ZREM", StopPoint.REPLY) as stop:
            eventually(lambda key=key, stop=stop: world.read(key) and stop.met, "an acknowledgement is held")
            eventually(lambda number=number: lost() >= number, "the worker gives it up")
    consumes(world)
    eventually(lambda: is_acknowledged(world), "all are acknowledged")
    world.verify(within_seconds=WITHIN_QUEUE_TTL_SECONDS)


@pytest.mark.failure("W23")
def test_a_worker_killed_while_restoring_messages_does_not_keep_others_from_it(world: World) -> None:
    key = held_load(world)
    with world.broker_proxy.stopping("SET", StopPoint.REPLY) as stop:
        stop.wait()
        assert world.broker.exists("unacked_mutex")
        world.worker().kill()
    world.let_go(key)
    world.let_lapse(key)
    world.add_worker()
    # It is due now; only the next sweep is waited for.
    world.broker.zadd("unacked_index", dict.fromkeys(world.broker.zrange("unacked_index", 0, -1), 0), xx=True)
    eventually(lambda: is_acknowledged(world), "the message taken by the dead worker is processed")
    world.verify(within_seconds=WITHIN_QUEUE_TTL_SECONDS, killed=True)


@pytest.fixture
def busy_machine() -> Iterator[None]:
    """Programs that compute, one more than a small machine has processors."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@pytest.mark.failure("W22")
@pytest.mark.longer
@pytest.mark.usefixtures("busy_machine")
def test_no_message_is_left_after_many_lost_connections_on_a_busy_machine(world: World) -> None:
    with Traffic(world) as traffic:
        for _ in range(KILLS):
            world.broker.client_kill_filter(_type="normal", skipme=True)
            traffic.goes_on_for(2)
    assert traffic.errors.total() == 0
    # A connection lost after the broker has recorded a message as taken, and before the worker has received it, leaves
    # a message that only the visibility timeout brings back; all else is done long before.
    within_seconds = visibility_seconds(world) + MUTEX_SECONDS + RESTORE_SECONDS + MAX_WAIT_SECONDS
    eventually(lambda: is_acknowledged(world), "all messages are acknowledged", within_seconds=within_seconds)
    world.verify(within_seconds=WITHIN_QUEUE_TTL_SECONDS)
