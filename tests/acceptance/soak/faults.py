"""Faults of the soak test: one after another, with the time of each."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from dataclasses import dataclass

import psutil
import redis

from refresher.embedded import GuardedProcess
from tests.acceptance.conftest import System
from tests.support.failing_queries import FAILING
from tests.support.fault_proxy import FaultProxy
from tests.support.waiting import eventually

PERIOD_SECONDS = 5.0
HUNG_SECONDS = 2.5
DOWN_SECONDS = 1.0
FAILING_PERCENT = 50


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
        self._system.redis_server.restart(keep_data=False)
        eventually(self._system.cache.ping, "the cache is back")

    def lose_the_messages(self) -> None:
        self._broker.flushdb()
