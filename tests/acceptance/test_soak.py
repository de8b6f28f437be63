"""A thousand reads per second while one thing after another breaks, half of the loads fail, and a writer invalidates.

Readers (threads, and an event loop) and the writer are processes of their own; what they saw and did is evaluated at
the end, by the same checker as in ``refresher doctor --watch``. Half a minute, ten minutes in
`make test-long`; SOAK_SECONDS sets any other span, SOAK_READS_PER_SECOND another rate.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psutil
import pytest
import redis

from api_client import CacheClient, EntryState
from refresher.checker.oracle import Checker, Invalidated, Observation
from refresher.checker.writer import check_repairs
from refresher.embedded import ArcadeDbServer, GuardedProcess, RedisServer
from tests.acceptance.conftest import ROOT, System
from tests.acceptance.soak.processes import BUCKETS_MS, QUERY, SOAKED
from tests.servers.restarts import restart
from tests.support.failing_queries import FAILING
from tests.support.fault_proxy import FaultProxy
from tests.support.graph_session import watched_nodes
from tests.support.requirements import IS_LONG
from tests.support.waiting import MAX_WAIT_SECONDS, PATIENCE, eventually

SAMPLE_SECONDS = 1.0
WARM_UP_SHARE = 1 / 3
MEBIBYTE = 1024 * 1024
PERIOD_SECONDS = 5.0
HUNG_SECONDS = 2.5
DOWN_SECONDS = 1.0
FAILING_PERCENT = 50
READS_PER_SECOND = float(os.environ.get("SOAK_READS_PER_SECOND", "1000"))
LONG, SHORT = 600.0, 36.0  # the short one has each fault once
NODES = 40
# A reader's breaker may stay open for a while after the cache is back, and a busy machine be late.
BACK_SECONDS = 30.0 * PATIENCE
MAX_GROWTH_MEBIBYTES, MAX_GROWTH_FILES = 24.0, 24.0


def slope(points: list[tuple[float, float]]) -> float:
    """Return the slope of the least-squares line through the points."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


class Sampler:
    """Takes memory and number of open files of named processes every second. ``pids`` says which they are by now."""

    def __init__(self, pids: Callable[[], dict[str, int]]) -> None:
        self._pids = pids
        self._memory: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self._files: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def growth_mebibytes(self) -> dict[str, float]:
        """Return the growth of each process after its warm-up, by the line through its samples."""
        return {name: self._growth(points) / MEBIBYTE for name, points in self._memory.items()}

    def growth_files(self) -> dict[str, float]:
        """Return by how many open files each process has grown after its warm-up."""
        return {name: self._growth(points) for name, points in self._files.items()}

    def last_mebibytes(self) -> dict[str, float]:
        return {name: points[-1][1] / MEBIBYTE for name, points in self._memory.items()}

    @staticmethod
    def _growth(points: list[tuple[float, float]]) -> float:
        warm = points[int(len(points) * WARM_UP_SHARE) :]
        return slope(warm) * (warm[-1][0] - warm[0][0])

    def _run(self) -> None:
        while not self._stopped.wait(SAMPLE_SECONDS):
            for name, pid in self._pids().items():
                try:
                    process = psutil.Process(pid)
                    now = time.monotonic()
                    self._memory[name].append((now, process.memory_info().rss))
                    self._files[name].append((now, process.num_fds()))
                except psutil.NoSuchProcess:
                    continue


@dataclass(frozen=True, slots=True)
class Happened:
    """A fault, from its begin to the recovery of what it broke (monotonic, s)."""

    what: str
    began: float
    ended: float


class Faults:
    """Injects one fault after another, every `PERIOD_SECONDS`, and repairs each.

    ``steady`` is a worker that is never killed; a second one is.
    """

    def __init__(self, system: System, broker: redis.Redis, broker_proxy: FaultProxy, worker: dict[str, str]) -> None:
        self._system, self._broker, self._broker_proxy, self._worker = system, broker, broker_proxy, worker
        self.steady = system.start_worker("-c", "2", **worker)
        self._victim = system.start_worker("-c", "2", **worker)
        self.happened: list[Happened] = []

    def run(self, end: float) -> None:
        """Inject faults until ``end`` (monotonic, s). On return, everything works and loads succeed."""
        pacer = threading.Event()
        turns = itertools.cycle(
            (
                self.kill_a_worker, self.hang_the_broker, self.flush_the_cache, self.cut_the_broker,
                self.restart_the_cache, self.lose_the_messages, self.kill_a_pool_process,
            )
        )  # fmt: skip
        for number, turn in enumerate(turns):
            due = time.monotonic() + PERIOD_SECONDS
            if due > end:
                break
            # Loads fail in every other period, so that each fault comes with and without that.
            self._system.control.set(FAILING, FAILING_PERCENT * (number % 2))
            began = time.monotonic()
            turn()
            self.happened.append(Happened(turn.__name__, began, time.monotonic()))
            pacer.wait(max(0.0, due - time.monotonic()))
        self._system.control.set(FAILING, 0)

    def kill_a_worker(self) -> None:
        self._victim.kill()
        self._victim = self._started()

    def _started(self) -> GuardedProcess:
        return self._system.start_worker("-c", "2", ready=False, **self._worker)

    def kill_a_pool_process(self) -> None:
        children = psutil.Process(self._victim.pid).children()
        if children:  # it may not have come up yet
            os.kill(children[-1].pid, signal.SIGKILL)

    def hang_the_broker(self) -> None:
        self._broker_proxy.hangs()
        threading.Event().wait(HUNG_SECONDS)
        self._broker_proxy.passes()

    def cut_the_broker(self) -> None:
        self._broker_proxy.refuses()
        threading.Event().wait(DOWN_SECONDS)
        self._broker_proxy.passes()

    def flush_the_cache(self) -> None:
        self._system.cache.flushdb()

    def restart_the_cache(self) -> None:
        self._system.redis_server.kill()
        threading.Event().wait(DOWN_SECONDS)
        restart(self._system.redis_server, keep_data=False)
        eventually(self._system.cache.ping, "the cache is back")

    def lose_the_messages(self) -> None:
        self._broker.flushdb()


SETTINGS = {
    "CACHE_COOLING": "1s",
    "CACHE_COOLING_MAX": "2s",
    "CACHE_XFETCH_TIMEOUT": "10s",
    "CACHE_XFETCH_RETRY_BACKOFF": "1",
    "STAMPEDE_LOCK_TIMEOUT_MS": "1500",
    "STAMPEDE_WAIT_TIMEOUT_MS": "5000",
    "REFRESHER_QUERIES": "tests.support.failing_queries",
}


def span_seconds() -> float:
    return float(os.environ.get("SOAK_SECONDS", LONG if IS_LONG else SHORT))


@dataclass
class Seen:
    """What the processes have written down."""

    checker: Checker = field(default_factory=lambda: Checker(QUERY))
    states: Counter[str] = field(default_factory=Counter)
    served_ms: Counter[int] = field(default_factory=Counter)
    failed: list[tuple[float, float, str, str]] = field(default_factory=list)

    def read(self, path: Path) -> None:
        for line in path.read_text(encoding="utf-8").splitlines():
            what, *values = json.loads(line)
            getattr(self, f"_{what}")(*values)

    def _seen(self, *values: Any) -> None:
        self.checker.observe(Observation(*values))

    def _done(self, *values: Any) -> None:
        self.checker.invalidated(Invalidated(*values))

    def _failed(self, *values: Any) -> None:
        self.failed.append(values)  # type: ignore[arg-type]

    def _read(self, states: dict[str, int], served_ms: dict[str, int], broken: list[str]) -> None:
        self.states.update(states)
        self.served_ms.update({int(bucket): count for bucket, count in served_ms.items()})
        for sentence in broken:
            self.checker.report(sentence)

    def not_injected(self, happened: list[Happened]) -> list[tuple[float, float, str, str]]:
        """Return the failed reads that no fault explains: no load that failed by chance, no cache that was down."""
        down = [(one.began, one.ended + BACK_SECONDS) for one in happened if one.what == "restart_the_cache"]
        return [
            one
            for one in self.failed
            if one[2:] != ("RefreshFailed", "transient")
            and not (one[2] == "CacheUnavailable" and any(begin <= one[1] <= end for begin, end in down))
        ]


def started(stack: ExitStack, role: str, env: dict[str, str], folder: Path) -> GuardedProcess:
    arguments = [role, str(folder / f"{role}.jsonl"), str(NODES), str(READS_PER_SECOND / 2), "7"]
    process = GuardedProcess.start(
        [sys.executable, "-m", "tests.acceptance.soak.processes", *arguments],
        env=env, cwd=ROOT, log_file=folder / f"{role}.log",
    )  # fmt: skip
    stack.callback(process.kill)
    return process


def in_order(span: float, stack: ExitStack, system: System, broker: RedisServer, folder: Path) -> tuple[Seen, str]:
    """Run everything; return what was seen, and the figures in a few lines."""
    proxy = FaultProxy.before(broker.url(1))
    stack.callback(proxy.close)
    env = {**SETTINGS, "CACHE_BROKER_URL": proxy.url(broker.url(1))}
    faults = Faults(system, stack.enter_context(redis.Redis.from_url(broker.url(1))), proxy, env)
    client = system.client(**env)
    for number in range(NODES):
        client.get(QUERY, {"node": f"n{number}"}, timeout=MAX_WAIT_SECONDS)
    processes = {role: started(stack, role, {**system.env, **env}, folder) for role in ("threads", "tasks", "writer")}
    pool = {f"pool-{n}": one.pid for n, one in enumerate(psutil.Process(faults.steady.pid).children())}
    pids = {**{role: one.pid for role, one in processes.items()}, "worker": faults.steady.pid, **pool}
    began = time.monotonic()
    with Sampler(lambda: pids) as sampler:
        faults.run(began + span)
    for role, process in processes.items():
        assert process.poll() is None, process.tail_of_log()
        assert process.terminate(within_seconds=2 * MAX_WAIT_SECONDS) == 0, f"{role}: {process.tail_of_log()}"
    took = time.monotonic() - began

    seen = Seen()
    for role in processes:
        seen.read(folder / f"{role}.jsonl")
    slowest = check_repairs(seen.checker, client, SOAKED, timeout_seconds=MAX_WAIT_SECONDS)
    all_newer_than_now(system, client)
    summary = figures(seen, faults.happened, sampler, took, slowest)
    assert seen.not_injected(faults.happened) == [], summary
    assert max(sampler.growth_mebibytes().values()) < MAX_GROWTH_MEBIBYTES, summary
    assert max(sampler.growth_files().values()) < MAX_GROWTH_FILES, summary
    return seen, summary


def all_newer_than_now(system: System, client: CacheClient) -> None:
    """Check that no key is stuck: reads of each get a value that was loaded from now on."""
    now_us = system.now_us()

    def all_newer() -> bool:
        return all(client.get_entry(QUERY, {"node": f"n{n}"}).token > now_us for n in range(NODES))

    eventually(all_newer, "every key is refreshed once more")


def figures(seen: Seen, happened: list[Happened], sampler: Sampler, took: float, slowest: float) -> str:
    reads = sum(seen.states.values())
    bounds = [*(f"≤{bound}" for bound in BUCKETS_MS), f">{BUCKETS_MS[-1]}"]
    served = {bounds[bucket]: count for bucket, count in sorted(seen.served_ms.items())}
    grown, last = sampler.growth_mebibytes(), sampler.last_mebibytes()
    invalidations, broken = seen.checker.invalidations, len(seen.checker.broken)
    hard = sum(one.hard for one in invalidations)
    return "\n".join(
        (
            f"{reads} reads in {took:.0f} s ({reads / took:.0f}/s): {dict(seen.states)}; at once, by ms: {served}",
            f"failed reads: {dict(Counter(f'{name} {kind}'.strip() for *_, name, kind in seen.failed))}",
            f"{len(happened)} faults: {dict(Counter(one.what for one in happened))}",
            f"{len(invalidations)} invalidations ({hard} hard), slowest repair {slowest:.2f} s; broken: {broken}",
            "memory, MiB (growth since it was warm): "
            + ", ".join(f"{name} {last[name]:.0f} ({grown[name]:+.1f})" for name in grown),
            "open files, growth: " + ", ".join(f"{name} {by:+.1f}" for name, by in sampler.growth_files().items()),
        )
    )


@pytest.mark.longer
@pytest.mark.timeout(span_seconds() + 8 * MAX_WAIT_SECONDS)
def test_a_thousand_reads_per_second_under_faults_break_no_guarantee(
    stack: ExitStack, system: System, arcadedb: ArcadeDbServer, tmp_path: Path
) -> None:
    span = span_seconds()
    broker = stack.enter_context(RedisServer.start())  # not the cache's, which is killed and emptied
    stack.enter_context(watched_nodes(arcadedb, [f"n{number}" for number in range(NODES)]))
    seen, summary = in_order(span, stack, system, broker, tmp_path)
    print(summary)  # noqa: T201 - the run's figures, shown with -rA or -s
    assert seen.checker.broken == [], summary
    assert seen.states[EntryState.STALE] > 0, summary
    assert len(seen.checker.invalidations) > span / 2, summary
    # Callers make up for waits, but not for errors; a busy machine is slower than the rate.
    assert sum(seen.states.values()) >= READS_PER_SECOND * span / 10, summary
