"""Signals that come again and again must not prolong a call: nothing hangs."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
import threading

import pytest

from api_client.transport import sockets
from api_client.transport.sockets import SocketWatchdog, set_io_timeout
from tests.integration.links.conftest import Connect
from tests.support.fault_proxy import FaultProxy
from tests.support.internals import idle_in, socket_of
from tests.support.interrupted_reader import CALLS
from tests.support.processes import run_forked
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

REDIS_TIMEOUT = "300ms"
PATIENT_TIMEOUT = f"{MAX_WAIT_SECONDS}s"


@pytest.mark.alone
@pytest.mark.parametrize(("call", "thread"), [*((call, "main") for call in sorted(CALLS)), ("read", "other")])
def test_a_call_to_a_silent_redis_ends_in_time_whatever_signals_come(
    call: str, thread: str, url: str, proxy: FaultProxy
) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.interrupted_reader", call, thread],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {
            "CACHE_REDIS_URL": url,
            "CACHE_BROKER_URL": url,
            "CACHE_REDIS_TIMEOUT": PATIENT_TIMEOUT if call == "wait" else REDIS_TIMEOUT,
        },
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            accepted = proxy.accepted
            if call != "wait":
                proxy.hangs()
            outcome, seconds, allowed_seconds = process.communicate("go\n", timeout=MAX_WAIT_SECONDS)[0].split()
        finally:
            process.kill()
    assert outcome == ("WaitTimeout" if call == "wait" else "CacheUnavailable")
    assert float(seconds) < float(allowed_seconds)
    if call in {"read", "batch", "send"}:
        assert proxy.accepted == accepted, "a request that timed out was repeated"


class Thing:
    """A watched socket that counts its checks."""

    def __init__(self) -> None:
        self.checks = 0

    def close_if_stalled(self) -> None:
        self.checks += 1


def watching_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "cache-overdue"}


def test_one_watchdog_thread_serves_all_sockets_and_ends_with_the_last() -> None:
    watch, others = SocketWatchdog(check_seconds=0.01), watching_threads()
    for _ in range(2):  # it comes again, too
        things = [Thing(), Thing()]
        assert all(map(watch.add, things))
        eventually(lambda things=things: all(thing.checks > 2 for thing in things), "checks")
        # What the second one started, before the first thread had its lock, ends by itself.
        eventually(lambda: len(watching_threads() - others) == 1, "one thread")
        things.clear()
        gc.collect()
        eventually(lambda: watching_threads() <= others, "no thread for nothing")


def test_an_idle_connection_is_not_closed_by_the_watchdog(
    connect: Connect, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections = connect()
    connections.execute(b"PING\r\n")
    (connection,), accepted = idle_in(connections), proxy.accepted
    monkeypatch.setattr("api_client.transport.pool.monotonic_seconds", lambda: 1e9)
    connection.close_if_stalled()
    monkeypatch.undo()
    assert connections.execute(b"PING\r\n") == b"PONG"
    assert proxy.accepted == accepted


def test_without_a_watchdog_thread_reads_use_python_s_socket_timeout(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    watch = SocketWatchdog()
    monkeypatch.setattr(sockets, "watchdog", lambda: watch)
    monkeypatch.setattr(sockets, "start_thread", none_left)
    connections = connect()
    assert connections.execute(b"PING\r\n") == b"PONG"
    (connection,) = idle_in(connections)
    assert socket_of(connection).gettimeout() == MAX_WAIT_SECONDS


def test_a_forked_child_has_a_watchdog_of_its_own() -> None:
    before, thing = sockets.watchdog(), Thing()
    before.add(thing)

    def watch() -> None:
        own, other = sockets.watchdog(), Thing()
        assert own is not before
        assert own.add(other)
        eventually(lambda: other.checks and len(watching_threads()) == 1, "a check")

    run_forked(watch)
    assert sockets.watchdog() is before


class NeverBlocking(socket.socket):
    """A socket as gevent makes them: its own timeouts, and a descriptor that never blocks."""

    def settimeout(self, value: float | None) -> None:
        super().settimeout(value)
        os.set_blocking(self.fileno(), False)


def test_sockets_that_ignore_the_kernel_s_timeout_use_python_s() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, NeverBlocking() as sock, socket.socket() as plain:
        sock.connect(server.getsockname())
        assert set_io_timeout(sock, 0.3, Thing()) == sock.gettimeout() == 0.3
        assert set_io_timeout(plain, 0.3, Thing()) is plain.gettimeout() is None
