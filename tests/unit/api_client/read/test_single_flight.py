"""Single flight of threads: followers share the leader's bytes or error, each within its own timeout."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from api_client.errors import RefreshFailed, WaitTimeout
from api_client.protocol.clock import monotonic_seconds
from api_client.read import coalescing
from api_client.read.coalescing import AsyncSingleFlight, SingleFlight
from tests.support.internals import flights_of
from tests.support.opcode_interrupts import Interrupted, InterruptedByTimer, OpcodeInterrupt, interrupts_at_each_opcode
from tests.support.timing import Time
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

NEVER_SECONDS = 3_600.0
ERRORS = pytest.mark.parametrize("error", [Interrupted, InterruptedByTimer])


@pytest.fixture
def flights() -> SingleFlight:
    return SingleFlight(monotonic_seconds)


class Lead:
    """A wait that lasts until the test lets it end."""

    def __init__(self, *outcomes: bytes | Exception) -> None:
        self.outcomes = list(outcomes)
        self.timeouts: list[float] = []
        self.go = threading.Semaphore(0)

    def __call__(self, timeout_seconds: float, read_begins: Callable[[], None]) -> bytes:
        self.timeouts.append(timeout_seconds)
        assert self.go.acquire(timeout=MAX_WAIT_SECONDS)
        read_begins()
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def all_wait(
    flights: SingleFlight, lead: Lead, timeouts: list[float], release: int, meanwhile: Callable[[], None] = lambda: None
) -> list[object]:
    """Let one reader per timeout share a flight, the first leading; return their results or errors in order."""
    with ThreadPoolExecutor(len(timeouts)) as pool:
        first = pool.submit(flights.share, "k", timeouts[0], lead)
        eventually(lambda: lead.timeouts, "the leader")
        others = [pool.submit(flights.share, "k", timeout, lead) for timeout in timeouts[1:]]
        eventually(lambda: len(waiters(flights)) == len(others), "the followers")
        meanwhile()
        for _ in range(release):
            lead.go.release()
        return [future.exception(MAX_WAIT_SECONDS) or future.result() for future in (first, *others)]


def waiters(flights: SingleFlight) -> list[object]:
    return [waker for flight in flights_of(flights) for waker in flight.waiting]


def test_followers_share_the_leader_s_error(flights: SingleFlight) -> None:
    error = RefreshFailed("q", "syntax", 1, 30.0)
    leader, *followers = all_wait(flights, Lead(error), [MAX_WAIT_SECONDS] * 3, release=1)
    assert leader is error
    assert [(type(each), str(each)) for each in followers] == [(RefreshFailed, str(error))] * 2


def test_a_leader_whose_time_ran_out_passes_the_lead_on(time: Time) -> None:
    def time_passes() -> None:
        time.now += 0.5

    lead = Lead(WaitTimeout("q", 1.0, "queued"), b"value", b"value", b"value")
    leader_s, others = MAX_WAIT_SECONDS, 2 * MAX_WAIT_SECONDS
    results = all_wait(SingleFlight(time), lead, [leader_s, others, others], release=4, meanwhile=time_passes)
    assert isinstance(results[0], WaitTimeout)
    assert {result[0] for result in results[1:]} == {b"value"}
    assert 1 < len(lead.timeouts) <= 3
    assert lead.timeouts[:2] == [leader_s, others - 0.5], "the next leader waits for the rest of its own timeout"


def test_keys_do_not_wait_for_each_other(flights: SingleFlight) -> None:
    def inner(_: float, read_begins: Callable[[], None]) -> bytes:
        read_begins()
        return b"inner"

    assert flights.share("a", 1.0, lambda *_: flights.share("b", 1.0, inner)[0]) == (b"inner", False)


def test_a_follower_takes_no_bytes_whose_read_had_begun_before_it_came(flights: SingleFlight) -> None:
    # They could be from before an invalidation that it knows of.
    reading, end = threading.Event(), threading.Event()

    def old(_: float, read_begins: Callable[[], None]) -> bytes:
        read_begins()
        reading.set()
        assert end.wait(MAX_WAIT_SECONDS)
        return b"old"

    def new(_: float, read_begins: Callable[[], None]) -> bytes:
        read_begins()
        return b"new"

    with ThreadPoolExecutor(2) as pool:
        leader = pool.submit(flights.share, "k", MAX_WAIT_SECONDS, old)
        assert reading.wait(MAX_WAIT_SECONDS)
        late = pool.submit(flights.share, "k", MAX_WAIT_SECONDS, new)
        eventually(lambda: waiters(flights), "the late one follows")
        end.set()
        assert leader.result(MAX_WAIT_SECONDS) == (b"old", False)
        assert late.result(MAX_WAIT_SECONDS) == (b"new", False)


@ERRORS
def test_an_interrupted_leader_leaves_the_lead_to_its_follower(error: type[BaseException]) -> None:
    with ThreadPoolExecutor(1) as pool:

        def run(bytecodes: OpcodeInterrupt) -> None:
            flights, following = SingleFlight(monotonic_seconds), list[Future[Any]]()

            def lead(_: float, read_begins: Callable[[], None]) -> bytes:
                (flight,) = flights_of(flights)
                following.append(pool.submit(flights.share, "k", NEVER_SECONDS, alone))
                eventually(lambda: flight.waiting, "it follows")
                read_begins()
                return b"led"

            with suppress(error), bytecodes.traced():
                flights.share("k", NEVER_SECONDS, lead)
            assert all(one.result(MAX_WAIT_SECONDS)[0] in {b"led", b"alone"} for one in following)
            assert flights_of(flights) == []

        for bytecodes in interrupts_at_each_opcode(coalescing, error=error):
            run(bytecodes)
        assert bytecodes.number > 100


@ERRORS
def test_an_interrupted_follower_does_not_disturb_the_leader(error: type[BaseException]) -> None:
    with ThreadPoolExecutor(2) as pool:

        def run(bytecodes: OpcodeInterrupt) -> None:
            flights, has_gone = SingleFlight(monotonic_seconds), list[bool]()

            def lead(_: float, read_begins: Callable[[], None]) -> bytes:
                (flight,) = flights_of(flights)
                eventually(lambda: has_gone or flight.waiting, "it follows, or has gone")
                read_begins()
                return b"led"

            leading = pool.submit(flights.share, "k", NEVER_SECONDS, lead)
            eventually(lambda: flights_of(flights), "it leads")
            with suppress(error), bytecodes.traced():
                flights.share("k", NEVER_SECONDS, alone)
            has_gone.append(True)
            assert leading.result(MAX_WAIT_SECONDS) == (b"led", False)
            assert flights_of(flights) == []

        for bytecodes in interrupts_at_each_opcode(coalescing, error=error):
            run(bytecodes)
        assert bytecodes.number > 100


@ERRORS
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")  # interrupted in between
@pytest.mark.parametrize("followers", [0, 3])
def test_an_interrupted_task_leaves_no_other_task_waiting(error: type[BaseException], followers: int) -> None:
    async def share(bytecodes: OpcodeInterrupt) -> None:
        flights = AsyncSingleFlight(monotonic_seconds)
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # the interrupted one's

        async def lead(_: float, read_begins: Callable[[], None]) -> bytes:
            for _ in range(3):
                await asyncio.sleep(0)
            read_begins()
            return b"led"

        with bytecodes.traced():
            tasks = [asyncio.ensure_future(flights.share("k", NEVER_SECONDS, lead)) for _ in range(1 + followers)]
            done, waiting = await asyncio.wait(tasks, timeout=MAX_WAIT_SECONDS)
        assert waiting == set()
        failed = [task for task in done if task.exception() is not None]
        assert len(failed) <= 1
        assert flights_of(flights) == []

    for bytecodes in interrupts_at_each_opcode(coalescing, error=error):
        asyncio.run(share(bytecodes))
    assert bytecodes.number > 100


def alone(_: float, read_begins: Callable[[], None]) -> bytes:
    read_begins()
    return b"alone"
