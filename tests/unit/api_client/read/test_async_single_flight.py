"""Single flight on an event loop, in asyncio's debug mode: an exception that is never retrieved is an error."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from api_client.errors import RefreshFailed, WaitTimeout
from api_client.read.coalescing import AsyncSingleFlight
from tests.support.internals import flights_of
from tests.support.timing import Time
from tests.support.waiting import MAX_WAIT_SECONDS, eventually


@pytest.fixture
def flights(time: Time) -> AsyncSingleFlight:
    return AsyncSingleFlight(time)


@pytest.fixture(autouse=True)
def run() -> Callable[[Coroutine[Any, Any, None]], None]:
    def on_new_loop(coroutine: Coroutine[Any, Any, None]) -> None:
        reported: list[Any] = []
        with asyncio.Runner(debug=True) as runner:
            runner.get_loop().set_exception_handler(lambda _, context: reported.append(context))
            runner.run(asyncio.wait_for(coroutine, MAX_WAIT_SECONDS))
            gc.collect()
        assert reported == [], "an exception was never retrieved"

    return on_new_loop


class Lead:
    """A wait that ends when the test says how."""

    def __init__(self, time: Time) -> None:
        self.time = time
        self.timeouts: list[float] = []
        self.begins: list[Callable[[], None]] = []
        self.ends: list[asyncio.Future[bytes]] = []
        self.cancelled = 0

    async def __call__(self, timeout_seconds: float, read_begins: Callable[[], None]) -> bytes:
        self.timeouts.append(timeout_seconds)
        self.begins.append(read_begins)
        self.ends.append(asyncio.get_running_loop().create_future())
        try:
            return await self.ends[-1]
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    def read(self, raw: bytes, number: int = -1) -> None:
        self.begins[number]()
        self.ends[number].set_result(raw)


@pytest.fixture
def lead(time: Time) -> Lead:
    return Lead(time)


def follow(flights: AsyncSingleFlight, lead: Lead, count: int, timeout: float = 10.0) -> list[asyncio.Task[Any]]:
    return [asyncio.ensure_future(flights.share("key", timeout, lead)) for _ in range(count)]


async def rounds(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def ended(tasks: list[asyncio.Task[Any]]) -> list[Any]:
    return await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("cancelled", [[0], [2], [0, 1, 3]])
async def test_a_cancelled_reader_leaves_the_wait_to_the_others(
    flights: AsyncSingleFlight, lead: Lead, cancelled: list[int]
) -> None:
    tasks = follow(flights, lead, 5)
    await rounds()
    for number in cancelled:
        tasks[number].cancel()
    await rounds()
    lead.read(b"raw")
    results = await ended(tasks)
    for number, result in enumerate(results):
        assert isinstance(result, asyncio.CancelledError) if number in cancelled else result[0] == b"raw"
    assert (len(lead.timeouts), lead.cancelled) == (1, 0)


async def test_when_all_readers_are_cancelled_the_wait_ends_and_the_next_reader_begins_its_own(
    flights: AsyncSingleFlight, lead: Lead
) -> None:
    tasks = follow(flights, lead, 3)
    await rounds()
    for task in tasks:
        task.cancel()
    (late,) = follow(flights, lead, 1)  # comes before the cancelled ones have run
    results = await ended(tasks)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)
    await rounds()
    lead.read(b"raw")
    assert (await late)[0] == b"raw"
    again = follow(flights, lead, 2)
    await rounds()
    for task in again:
        task.cancel()
    await ended(again)
    await rounds()
    assert (lead.cancelled, flights_of(flights)) == (2, [])


async def test_a_follower_takes_no_bytes_whose_read_had_begun_before_it_came(
    flights: AsyncSingleFlight, lead: Lead, time: Time
) -> None:
    (leader,) = follow(flights, lead, 1)
    await rounds()
    lead.begins[0]()
    time.now += 1
    (late,) = follow(flights, lead, 1)
    await rounds()
    lead.ends[0].set_result(b"old")
    assert await leader == (b"old", False)
    await rounds()
    lead.read(b"new")
    assert await late == (b"new", False)
    assert lead.timeouts == [10.0, 10.0]


async def test_an_error_is_raised_in_all_waiters_each_with_its_own_copy(flights: AsyncSingleFlight, lead: Lead) -> None:
    error = RefreshFailed("q", "syntax", 1, 30.0)
    tasks = follow(flights, lead, 4)
    await rounds()
    lead.ends[0].set_exception(error)
    first, *others = await ended(tasks)
    assert first is error
    assert [(type(each), str(each)) for each in others] == [(RefreshFailed, str(error))] * 3
    assert len({id(each) for each in (first, *others)}) == 4
    assert len(lead.timeouts) == 1


@pytest.mark.parametrize("before", range(4))
async def test_an_error_without_remaining_waiters_is_not_reported_as_unretrieved(
    flights: AsyncSingleFlight, lead: Lead, before: int
) -> None:
    tasks = follow(flights, lead, 3)
    await rounds()
    lead.ends[0].set_exception(RefreshFailed("q", "syntax", 1, 30.0))
    await rounds(before)  # so that it meets them at each of their steps
    for task in tasks:
        task.cancel()
    await ended(tasks)
    await rounds()
    lead.ends.clear()  # nobody holds the flight any more
    lead.begins.clear()


async def test_when_the_leader_times_out_a_follower_leads_for_the_rest_of_its_own_timeout(
    flights: AsyncSingleFlight, lead: Lead, time: Time
) -> None:
    (leader,) = follow(flights, lead, 1, timeout=1.0)
    others = follow(flights, lead, 2, timeout=10.0)
    await rounds()
    time.now += 4
    lead.ends[0].set_exception(WaitTimeout("q", 1.0, "queued"))
    (result,) = await ended([leader])
    assert isinstance(result, WaitTimeout)
    await rounds()
    assert lead.timeouts == [1.0, 6.0]
    lead.read(b"raw")
    assert [raw for raw, _ in await ended(others)] == [b"raw"] * 2


async def test_keys_and_event_loops_do_not_wait_for_each_other(flights: AsyncSingleFlight, lead: Lead) -> None:
    async def inner(_: float, read_begins: Callable[[], None]) -> bytes:
        read_begins()
        return b"inner"

    (waiting,) = follow(flights, lead, 1)
    await rounds()
    assert await flights.share("another", 1.0, inner) == (b"inner", False)
    other_loop = asyncio.to_thread(asyncio.run, flights.share("key", 1.0, inner))
    assert await other_loop == (b"inner", False)
    lead.read(b"raw")
    assert await waiting == (b"raw", False)


def test_a_loop_closed_in_the_middle_of_a_wait_leaves_nothing(flights: AsyncSingleFlight, lead: Lead) -> None:
    async def begin() -> None:
        follow(flights, lead, 3)
        await rounds()

    async def inner(_: float, read_begins: Callable[[], None]) -> bytes:
        read_begins()
        return b"inner"

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # asyncio itself reports the tasks that are left
    loop.run_until_complete(begin())
    loop.close()
    gone = weakref.ref(loop)
    del loop
    lead.begins.clear()
    lead.ends.clear()
    assert asyncio.run(flights.share("key", 1.0, inner)) == (b"inner", False)

    def is_gone() -> bool:
        gc.collect()  # what its tasks then raise would be an error; while another thread collects, it does nothing
        return (gone(), flights_of(flights)) == (None, [])

    eventually(is_gone, "nothing is left of the loop")
