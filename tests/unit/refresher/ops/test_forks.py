"""A fork waits for the threads that are at work, and has them wait."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import pytest

from refresher.ops import health
from refresher.ops.forks import ForkGate, fork_gate
from refresher.ops.heartbeat import Heartbeat
from refresher.settings import WorkerSettings
from refresher.worker.periodic import Periodic, in_redis
from tests.support.waiting import MAX_WAIT_SECONDS


class Work:
    """The work of a thread that holds a lock; notified of a fork that is about to begin, it goes on for a moment."""

    def __init__(self, gate: ForkGate) -> None:
        self.lock, self._gate = threading.Lock(), gate
        self._begun, self.fork_begins = threading.Event(), threading.Event()

    def do(self) -> None:
        with self._gate.at_work(), self.lock:
            self._begun.set()
            assert self.fork_begins.wait(MAX_WAIT_SECONDS)
            threading.Event().wait(0.2)  # a fork that did not wait would be over in a fraction of that

    def until_begun(self) -> None:
        assert self._begun.wait(MAX_WAIT_SECONDS)


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


def child_gets(lock: threading.Lock) -> bool:
    """Fork a child; return whether it gets the lock."""
    pid = os.fork()
    if pid == 0:
        os._exit(0 if lock.acquire(blocking=False) else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_no_child_inherits_a_lock_of_a_thread_at_work(
    thread: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_gate, "_max_wait_seconds", MAX_WAIT_SECONDS)
    work = Work(fork_gate)
    os.register_at_fork(before=work.fork_begins.set)  # before the gate's: the last one registered is called first
    done = thread.submit(work.do)
    work.until_begun()
    assert fork_gate.is_at_work
    assert child_gets(work.lock)
    done.result()


def test_a_fork_waits_no_longer_than_its_limit_and_the_child_can_work_and_fork(thread: ThreadPoolExecutor) -> None:
    gate = ForkGate(max_wait_seconds=0.01)
    gate.register()
    work = Work(gate)
    done = thread.submit(work.do)
    work.until_begun()
    pid = os.fork()
    if pid == 0:
        is_at_rest = not gate.is_at_work
        with gate.at_work():
            os._exit(0 if is_at_rest else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert gate.is_at_work
    work.fork_begins.set()
    done.result()
    assert not gate.is_at_work


def test_failed_work_no_longer_counts_as_at_work() -> None:
    gate = ForkGate()

    def fails(text: str) -> None:
        raise ValueError(text)

    with pytest.raises(ValueError, match="refused"):
        gate.guards(fails)("refused")
    assert not gate.is_at_work


def test_threads_of_a_worker_s_main_process_are_at_work_while_they_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: SimpleQueue[bool] = SimpleQueue()

    def probe_once(*_: object) -> None:
        seen.put(fork_gate.is_at_work)

    periodic = Periodic("test", MAX_WAIT_SECONDS, in_redis("redis://127.0.0.1:1/0", probe_once))
    periodic.start()
    assert seen.get(timeout=MAX_WAIT_SECONDS)
    periodic.stop()
    for probe in ("cache_problem", "broker_problem", "graph_problem"):
        monkeypatch.setattr(health, probe, probe_once)
    checked = health.Health(WorkerSettings(), Heartbeat())
    checked.ready()
    assert [seen.get(timeout=MAX_WAIT_SECONDS) for _ in range(3)] == [True] * 3
    checked.close()
