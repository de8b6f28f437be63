"""Threads that share the sync reader's connections: interrupts, more threads than connections, their order."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
from redis.exceptions import TimeoutError

from api_client.transport.pool import AllInUse, Connections
from api_client.transport.wire import pack, pack_get
from refresher.embedded import RedisServer
from tests.integration.links.conftest import Connect
from tests.support.fault_proxy import FaultProxy
from tests.support.internals import end_as_stalled, idle_in, opened_in, set_timeout, waiting_in
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

GET = pack_get("key")
SHORT_SECONDS = 0.3


def test_a_read_interrupted_by_a_signal_leaves_no_reply_for_the_next_read(
    connections: Connections, proxy: FaultProxy, control: redis.Redis
) -> None:
    control.set("other", "another value")
    waiting = threading.Event()

    def interrupt_when_it_waits() -> None:
        eventually(lambda: control.info("commandstats").get("cmdstat_get"), "it was sent")
        waiting.set()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    control.config_resetstat()
    proxy.holds_replies()
    thread = threading.Thread(target=interrupt_when_it_waits)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        connections.execute(GET)
    assert waiting.is_set()
    thread.join()
    proxy.passes()
    assert connections.execute(pack_get("other")) == b"another value"


@pytest.mark.parametrize("threads", [64, 200])
def test_more_threads_than_connections_are_all_served(
    connect: Connect, control: redis.Redis, clean_redis: RedisServer, threads: int
) -> None:
    connections = connect(clean_redis.url(0))
    start = threading.Barrier(threads)

    def echo(number: int) -> bool:
        start.wait()
        own = str(number)
        return all(connections.execute(pack("ECHO", own)) == own.encode() for _ in range(20))

    with ThreadPoolExecutor(threads) as many:
        assert all(many.map(echo, range(threads)))
    assert 0 < len(idle_in(connections)) == len(opened_in(connections)) <= 64
    assert not waiting_in(connections)


def test_a_connection_slot_freed_by_an_error_goes_to_a_waiting_thread(
    connect: Connect, control: redis.Redis, proxy: FaultProxy, pool: ThreadPoolExecutor
) -> None:
    one = connect(max_connections=1)
    one.execute(GET)
    (connection,) = idle_in(one)
    control.config_resetstat()
    proxy.holds_replies()
    first = pool.submit(one.execute, GET)
    eventually(lambda: control.info("commandstats").get("cmdstat_get"), "the first one was sent")
    second = pool.submit(one.execute, GET)
    eventually(lambda: waiting_in(one), "the second one waits")
    end_as_stalled(connection)
    with pytest.raises(TimeoutError, match="did not answer"):
        first.result(MAX_WAIT_SECONDS)
    proxy.passes()
    assert second.result(MAX_WAIT_SECONDS / 2) == b"value"


def test_a_wait_for_a_connection_times_out_with_its_reason(
    connect: Connect, control: redis.Redis, proxy: FaultProxy, pool: ThreadPoolExecutor
) -> None:
    one = connect(max_connections=1)
    one.execute(GET)
    set_timeout(one, SHORT_SECONDS)  # for the wait for a connection only; the pending reply may take longer
    proxy.holds_replies()
    first = pool.submit(one.execute, GET)
    eventually(lambda: not idle_in(one), "the connection is in use")
    with pytest.raises(AllInUse, match="all 1 connections are in use, and none became free in time"):
        one.execute(GET)
    assert not waiting_in(one)
    proxy.passes()
    assert first.result(MAX_WAIT_SECONDS) == b"value"
