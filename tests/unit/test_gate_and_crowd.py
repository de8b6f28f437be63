"""Thousands of threads on one thing: all go through, whatever becomes of single ones; reads of one key are shared."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from api_client import crowd as crowd_module
from api_client.crowd import Crowd
from api_client.errors import CacheUnavailable
from api_client.gate import AT_A_TIME, Gate
from api_client.keys import CacheKey, make_key
from tests.support.waiting import eventually

PATIENCE_SECONDS = 20.0
MANY = 5 * AT_A_TIME
KEY, OTHER = make_key("ns", "q", {"a": 1}, 1), make_key("ns", "q", {"a": 2}, 1)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(MANY + 2) as threads:
        yield threads


def test_all_who_wait_go_through_and_so_do_all_who_come_later(pool: ThreadPoolExecutor) -> None:
    gate = Gate()
    waiting = [pool.submit(gate.wait, PATIENCE_SECONDS) for _ in range(MANY)]
    eventually(lambda: len(gate) == MANY, PATIENCE_SECONDS, "all wait")
    gate.open()
    assert all(one.result(PATIENCE_SECONDS) for one in waiting)
    assert (gate.wait(), len(gate)) == (True, 0)


def test_who_wait_are_woken_a_few_at_a_time_and_each_wakes_the_next_one() -> None:
    gate, woken = Gate(), []

    class Waits:
        def __init__(self, number: int) -> None:
            self.number = number

        def release(self) -> None:
            woken.append(self.number)

    gate._waiting.extend(Waits(number) for number in range(MANY))  # type: ignore[misc]
    gate.open()
    assert woken == list(range(AT_A_TIME))
    gate._wake_next()
    assert woken[AT_A_TIME:] == [AT_A_TIME]


def test_who_comes_first_in_line_is_woken_first(pool: ThreadPoolExecutor) -> None:
    gate = Gate()
    other = pool.submit(gate.wait, PATIENCE_SECONDS)
    eventually(lambda: len(gate) == 1, PATIENCE_SECONDS, "it waits")
    (its_place,) = gate._waiting
    first = pool.submit(gate.wait, PATIENCE_SECONDS, first=True)
    eventually(lambda: len(gate) == 2, PATIENCE_SECONDS, "both wait")
    assert gate._waiting[1] is its_place
    gate.open()
    assert (first.result(PATIENCE_SECONDS), other.result(PATIENCE_SECONDS)) == (True, True)


def test_whose_time_runs_out_leaves_the_line_as_it_was(pool: ThreadPoolExecutor) -> None:
    gate = Gate()
    waiting = [pool.submit(gate.wait, PATIENCE_SECONDS) for _ in range(3)]
    eventually(lambda: len(gate) == 3, PATIENCE_SECONDS, "they wait")
    assert not gate.wait(0.001, first=True)
    assert len(gate) == 3
    gate.open()
    assert all(one.result(PATIENCE_SECONDS) for one in waiting)


def test_who_was_woken_just_when_its_time_ran_out_goes_through_and_wakes_the_next_one(pool: ThreadPoolExecutor) -> None:
    gate = Gate()
    behind = pool.submit(gate.wait, PATIENCE_SECONDS)
    eventually(lambda: len(gate) == 1, PATIENCE_SECONDS, "it waits")
    assert gate._leave(threading.Lock()), "it is not in line any more: it was woken"
    assert behind.result(PATIENCE_SECONDS)


@pytest.mark.parametrize("is_woken", [False, True])
def test_an_interrupt_leaves_none_of_the_others_waiting(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, is_woken: bool
) -> None:
    gate = Gate()

    class Interrupted:
        """A lock whose holder meets Ctrl-C: before it was woken, or after."""

        def acquire(self, timeout: float = 0.0) -> bool:
            if timeout:
                if is_woken:
                    gate.open()
                raise KeyboardInterrupt
            return True

        def release(self) -> None:
            pass

    with monkeypatch.context() as patched:
        patched.setattr("api_client.gate.Lock", Interrupted)
        if not is_woken:
            with pytest.raises(KeyboardInterrupt):
                gate.wait()
            assert len(gate) == 0
    behind = [pool.submit(gate.wait, PATIENCE_SECONDS) for _ in range(MANY)]
    eventually(lambda: len(gate) == MANY, PATIENCE_SECONDS, "they wait")
    if is_woken:
        monkeypatch.setattr("api_client.gate.Lock", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            gate.wait(first=True)
    else:
        gate.open()
    assert all(one.result(PATIENCE_SECONDS) for one in behind)


class Redis:
    """Answers each read when the test says so."""

    def __init__(self) -> None:
        self.reads: list[tuple[CacheKey, Future[bytes | None]]] = []

    def __call__(self, key: CacheKey) -> bytes | None:
        answer: Future[bytes | None] = Future()
        self.reads.append((key, answer))
        return answer.result(PATIENCE_SECONDS)

    def has(self, count: int) -> None:
        eventually(lambda: len(self.reads) >= count, PATIENCE_SECONDS, f"{count} reads are under way")

    def answer(self, number: int, raw: bytes | BaseException | None) -> None:
        answer = self.reads[number][1]
        answer.set_exception(raw) if isinstance(raw, BaseException) else answer.set_result(raw)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Redis:
    monkeypatch.setattr(crowd_module, "FEW", 2)
    return Redis()


@pytest.fixture
def crowd(server: Redis) -> Crowd:
    return Crowd(server)


def shares(crowd: Crowd, count: int, key: CacheKey = KEY) -> Callable[[], bool]:
    """Tell whether so many wait: for the read under way, for the one to be sent next, and to send that one."""

    def do() -> bool:
        turn = crowd._turns.get(key.entry)
        return turn is not None and turn.before is not None and len(turn.over) + len(turn.before.over) == count

    return do


def read(pool: ThreadPoolExecutor, crowd: Crowd, count: int, key: CacheKey = KEY) -> list[Future[Any]]:
    return [pool.submit(crowd.read, key) for _ in range(count)]


def answering(server: Redis, reads: list[Future[Any]], first: int, raw: bytes | BaseException) -> Callable[[], bool]:
    """Answer what is asked from now on, be it one read more or several, until all have returned."""

    def do() -> bool:
        for number in range(first, len(server.reads)):
            if not server.reads[number][1].done():
                server.answer(number, raw)
        return all(one.done() for one in reads)

    return do


def end(server: Redis, reads: list[Future[Any]], count: int) -> None:
    for number in range(count):
        if not server.reads[number][1].done():
            server.answer(number, None)
    for one in reads:
        one.exception(PATIENCE_SECONDS)


def test_few_threads_read_each_for_itself(pool: ThreadPoolExecutor, crowd: Crowd, server: Redis) -> None:
    reads = read(pool, crowd, 2)
    server.has(2)
    server.answer(0, b"one")
    server.answer(1, b"two")
    assert {one.result(PATIENCE_SECONDS) for one in reads} == {b"one", b"two"}


def test_a_crowd_shares_the_read_that_is_sent_after_it_came(
    pool: ThreadPoolExecutor, crowd: Crowd, server: Redis
) -> None:
    alone = read(pool, crowd, 2)
    server.has(2)
    first = read(pool, crowd, 1)
    server.has(3)
    many = read(pool, crowd, 50)
    eventually(shares(crowd, 50), PATIENCE_SECONDS, "all others wait")
    assert len(server.reads) == 3, "none of them takes the read that was under way when it came"
    server.answer(2, b"old")
    assert first[0].result(PATIENCE_SECONDS) == b"old"
    server.has(4)
    late = read(pool, crowd, 1)
    eventually(shares(crowd, 49 + 1), PATIENCE_SECONDS, "who comes when it has been sent waits for the next one")
    server.answer(3, b"new")
    assert {one.result(PATIENCE_SECONDS) for one in many} == {b"new"}
    server.has(5)
    server.answer(4, b"newest")
    assert late[0].result(PATIENCE_SECONDS) == b"newest"
    end(server, alone, 2)
    assert (len(server.reads), crowd._turns, crowd._inside) == (5, {}, [])


def test_keys_do_not_wait_for_each_other(pool: ThreadPoolExecutor, crowd: Crowd, server: Redis) -> None:
    reads = read(pool, crowd, 2) + read(pool, crowd, 1) + read(pool, crowd, 1, OTHER)
    server.has(4)
    assert sorted(key.entry for key, _ in server.reads).count(OTHER.entry) == 1
    end(server, reads, 4)


@pytest.mark.parametrize("is_down", [True, False])
def test_who_shared_a_read_that_failed_share_one_more(
    pool: ThreadPoolExecutor, crowd: Crowd, server: Redis, is_down: bool
) -> None:
    down = CacheUnavailable("down", query="q")
    reads = read(pool, crowd, 3)
    server.has(3)
    many = read(pool, crowd, 10)
    eventually(shares(crowd, 10), PATIENCE_SECONDS, "they wait")
    server.answer(2, None)
    server.has(4)
    late = read(pool, crowd, 1)
    eventually(shares(crowd, 9 + 1), PATIENCE_SECONDS, "one more, for the next read")
    server.answer(3, down)
    server.has(5)
    eventually(lambda: sum(one.done() for one in many) == 1, PATIENCE_SECONDS, "who read is told")
    eventually(answering(server, many, 4, down if is_down else b"value"), PATIENCE_SECONDS, "all are told")
    outcomes = [one.exception(PATIENCE_SECONDS) or one.result() for one in many]
    assert outcomes.count(down) == (10 if is_down else 1)
    assert is_down or outcomes.count(b"value") == 9
    end(server, [*reads, *late], 3)


def test_when_the_one_who_reads_is_interrupted_another_one_reads(
    pool: ThreadPoolExecutor, crowd: Crowd, server: Redis
) -> None:
    reads = read(pool, crowd, 3)
    server.has(3)
    many = read(pool, crowd, 10)
    eventually(shares(crowd, 10), PATIENCE_SECONDS, "they wait")
    server.answer(2, None)
    server.has(4)
    server.answer(3, KeyboardInterrupt())
    eventually(answering(server, many, 4, b"value"), PATIENCE_SECONDS, "others read")
    outcomes = [one.exception(PATIENCE_SECONDS) or one.result() for one in many]
    assert sum(isinstance(outcome, KeyboardInterrupt) for outcome in outcomes) == 1
    assert outcomes.count(b"value") == 9
    end(server, reads, 3)
