"""Exceptions from signal handlers at every instruction: no lock stays held, no place in the pool is lost."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator

import pytest
import redis

from api_client.transport import pool as connection
from api_client.transport import pool as connections
from api_client.transport import sockets
from api_client.transport.pool import Connections
from api_client.transport.sockets import SocketWatchdog
from api_client.transport.wire import pack, pack_get
from tests.integration.links.conftest import Connect
from tests.support.internals import waiting_in
from tests.support.opcode_interrupts import interrupted_at_each_opcode
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

GET, PING = pack_get("key"), pack("PING")
MIN_INSTRUCTIONS = 12

# A socket whose owner was interrupted before it could close it is closed by its destructor.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


def is_usable(pool: Connections, size: int) -> bool:
    """Whether another thread gets replies on all connections of the pool at once."""
    gc.collect()  # what an exception's traceback has kept alive
    replies: list[object] = []

    def use_all() -> None:
        begun = [pool.begin(PING, 1) for _ in range(size)]
        replies.extend(finish()[0] for finish in begun)

    thread = threading.Thread(target=use_all, daemon=True)
    thread.start()
    thread.join(MAX_WAIT_SECONDS)
    return replies == [b"PONG"] * size


CALLS: dict[str, Callable[[Connections], object]] = {
    "execute": lambda pool: pool.execute(GET),
    "several": lambda pool: pool.begin(GET * 3, 3)(),
    "connect": lambda pool: (pool.drop_idle(), pool.execute(GET)),
    "leave": lambda pool: (pool.invalidate_connections(), pool.execute(GET)),
}


@pytest.fixture(autouse=True)
def _quick_collections() -> Iterator[None]:
    """Restrict the garbage collector to the objects of these tests: it runs thousands of times."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_call_may_be_interrupted_at_any_instruction(connect: Connect, control: redis.Redis, name: str) -> None:
    pool = connect(max_connections=2)
    number = 0
    for number in interrupted_at_each_opcode(lambda: CALLS[name](pool), connections, connection, sockets):
        assert is_usable(pool, 2), f"after an interrupt at instruction {number}"
        assert pool.execute(GET) == b"value"
    assert number > MIN_INSTRUCTIONS


def test_a_wait_for_a_connection_may_be_interrupted_at_any_instruction(connect: Connect, control: redis.Redis) -> None:
    pool = connect(max_connections=1)
    pool.execute(PING)
    ended = threading.Event()

    def wait_for_a_turn() -> None:
        """Read while another thread has the only connection; it is released once this one waits."""
        ended.clear()
        in_use = [pool.begin(PING, 1)]

        def give_back() -> None:
            eventually(lambda: waiting_in(pool) or ended.is_set(), "the other one waits")
            in_use.pop()()

        helper = threading.Thread(target=give_back)
        helper.start()
        try:
            results.append(pool.execute(GET))
        finally:
            ended.set()
            helper.join()

    number, results = 0, list[object]()
    for number in interrupted_at_each_opcode(wait_for_a_turn, connections, connection):
        assert is_usable(pool, 1), f"after an interrupt at instruction {number}"
    assert number > MIN_INSTRUCTIONS
    assert results == [b"value"]


def test_an_interrupted_hand_over_of_a_connection_still_serves_the_waiting_thread(
    connect: Connect, control: redis.Redis
) -> None:
    pool = connect(max_connections=1)
    pool.execute(PING)
    others: list[threading.Thread] = []
    replies: list[object] = []

    def give_to_another() -> None:
        finish = pool.begin(PING, 1)
        others.append(threading.Thread(target=lambda: replies.append(pool.execute(GET))))
        others[-1].start()
        eventually(lambda: waiting_in(pool), "the other one waits")
        finish()

    for number in interrupted_at_each_opcode(give_to_another, connections):
        for thread in others[-1:]:
            thread.join(MAX_WAIT_SECONDS)
        assert replies == [b"value"] * len(others), f"after an interrupt at instruction {number}"
        assert pool.execute(GET) == b"value"
    assert len(others) > MIN_INSTRUCTIONS


class Thing:
    def __init__(self) -> None:
        self.was_checked = threading.Event()

    def close_if_stalled(self) -> None:
        self.was_checked.set()


def test_the_socket_watchdog_survives_interrupts_of_its_callers() -> None:
    watch, number = SocketWatchdog(check_seconds=0.001), 0
    for number in interrupted_at_each_opcode(lambda: watch.add(Thing()), sockets):
        thing = Thing()
        assert watch.add(thing)
        assert thing.was_checked.wait(MAX_WAIT_SECONDS), f"after an interrupt at instruction {number}"
    assert number > MIN_INSTRUCTIONS
