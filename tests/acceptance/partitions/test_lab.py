"""The laboratory of hosts, by itself: what reaches what, and what is left of it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
import redis

from refresher.embedded import RedisServer
from tests.acceptance.conftest import ROOT
from tests.acceptance.partitions.lab import Host, Laboratory, between, full_disk
from tests.acceptance.partitions.nemesis import kinds_of, plan
from tests.acceptance.partitions.topologies import TOPOLOGIES, Topology
from tests.support.processes import is_gone
from tests.support.waiting import eventually

PORT, SENT = 5_000, 200
LOST_SECONDS, STEP_SECONDS = 0.3, 100
MAKES_ONE = """
import os, sys
from contextlib import ExitStack
from pathlib import Path
from tests.acceptance.partitions.lab import Laboratory
with ExitStack() as stack:
    host = Laboratory(stack, ["one", "two"]).hosts["one"]
    process = host.start(["sleep", "1000"], env=os.environ, log_file=Path(os.devnull))
    print(process.pid, os.stat(host.network.path).st_ino, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def lab(stack: ExitStack) -> Laboratory:
    return Laboratory(stack, ("one", "two", "three"))


@pytest.fixture
def inbox(lab: Laboratory) -> Iterator[socket.socket]:
    """What arrives at the first host."""
    with lab.hosts["one"].network.entered():
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        opened.bind((lab.hosts["one"].address, PORT))
    with closing(opened):
        yield opened


def arrives(inbox: socket.socket, source: Host, within_seconds: float = LOST_SECONDS) -> bool:
    with source.network.entered(), closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sender:
        sender.sendto(source.name.encode(), inbox.getsockname())
    inbox.settimeout(within_seconds)
    with suppress(TimeoutError):
        return inbox.recv(100) == source.name.encode()
    return False


def test_what_is_cut_is_lost_and_nothing_else(lab: Laboratory, inbox: socket.socket) -> None:
    two, three = lab.hosts["two"], lab.hosts["three"]
    assert arrives(inbox, two)
    lab.cut(between(["one", "three"], ["two"]))
    assert (arrives(inbox, two), arrives(inbox, three)) == (False, True)
    lab.cut([("one", "two")])
    assert arrives(inbox, two), "the other direction is cut"
    lab.cut(())
    assert arrives(inbox, two)
    lab.cut([("two", "one")], lost_share=0.5)
    assert {arrives(inbox, two, 0.01) for _ in range(SENT)} == {True, False}


@pytest.mark.compiler
def test_a_host_may_have_a_wrong_clock_or_no_disk_left(stack: ExitStack, tmp_path: Path) -> None:
    lab = Laboratory(stack, ("one",), clocks=tmp_path)
    host = lab.hosts["one"]
    stack.enter_context(lab.entered())
    server = stack.enter_context(host.runs(RedisServer).start(extra_config=[("appendonly", "yes")]))
    client = stack.enter_context(redis.Redis.from_url(server.url()))
    assert not is_refused(client)
    host.clock.goes_off_by(-STEP_SECONDS)
    assert client.time()[0] == pytest.approx(time.time() - STEP_SECONDS, abs=STEP_SECONDS / 2)
    with full_disk(server.pid):
        eventually(lambda: is_refused(client), "no write is accepted")
        assert client.get("key") == b"value"
    eventually(lambda: not is_refused(client), "writes are accepted again")


def is_refused(client: redis.Redis) -> bool:
    try:
        client.set("key", "value")
    except redis.ResponseError as error:
        return str(error).startswith("MISCONF")
    return False


def test_hosts_reach_nothing_outside(lab: Laboratory) -> None:
    outside = socket.create_server(("", 0))
    with closing(outside), closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        with suppress(OSError):  # without a route outside there is the loopback address to try
            probe.connect(("192.0.2.1", 9))
        addresses = {"127.0.0.1", probe.getsockname()[0]} - {"0.0.0.0"}  # noqa: S104 - left out
        for host in lab.hosts.values():
            for address in addresses:
                with host.network.entered(), pytest.raises(OSError, match=r"unreachable|refused"):
                    socket.create_connection((address, outside.getsockname()[1]), timeout=LOST_SECONDS)


def test_nothing_is_left_where_its_process_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", MAKES_ONE], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as maker:
        pid, namespace = map(int, maker.stdout.readline().split())
        assert users_of(namespace)
        maker.send_signal(signal.SIGKILL)
    eventually(lambda: is_gone(pid) and not users_of(namespace), "its hosts' processes are gone")


def users_of(namespace: int) -> list[str]:
    """Return the processes on a network."""
    found = []
    for path in Path("/proc").glob("[0-9]*/ns/net"):
        with suppress(OSError):
            if path.stat().st_ino == namespace:
                found.append(path.parts[2])
    return found


@pytest.mark.parametrize("topology", TOPOLOGIES.values(), ids=TOPOLOGIES.keys())
def test_a_seed_makes_the_same_plan_of_all_kinds(topology: Topology) -> None:
    count = len(kinds_of(topology))
    planned = plan(7, topology, count, (1, 2))
    assert planned == plan(7, topology, count, (1, 2)) != plan(8, topology, count, (1, 2))
    assert len({fault.name.partition(",")[0] for fault in planned}) == count
    hosts = set(topology.hosts)
    assert all(set(fault.with_master(topology.replicated[0]).hosts) <= hosts for fault in planned)
