"""A signal handler's exception at each bytecode of a shared wait: no other reader waits for longer because of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from api_client.protocol.clock import monotonic_seconds
from api_client.read import coalescing
from api_client.read.coalescing import AsyncSingleFlight, SingleFlight
from tests.support.internals import flights_of
from tests.support.opcode_interrupts import (
    Interrupted,
    InterruptedByTimer,
    OpcodeInterrupt,
    interrupts_at_each_opcode,
)
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

NEVER_SECONDS = 3_600.0
ERRORS = pytest.mark.parametrize("error", [Interrupted, InterruptedByTimer])


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
