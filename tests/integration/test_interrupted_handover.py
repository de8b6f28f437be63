"""A signal handler's exception at each bytecode of a reader's handover to its threads; and threads that have died."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
import redis

from api_client import threads
from api_client.transport import pubsub as notifications_module
from api_client.transport.pubsub import Notifications
from api_client.trigger import backlog as triggers
from api_client.trigger import publisher as publisher_module
from refresher.embedded import RedisServer
from tests.support.internals import is_running, listened_to, thread_of
from tests.support.opcode_interrupts import Interrupted, OpcodeInterrupt, interrupts_at_each_opcode
from tests.support.publisher_harness import PublisherHarness, ScriptedBroker
from tests.support.waiting import MAX_WAIT_SECONDS, eventually


class Refusing:
    """A client that gets no connection."""

    subscribed = False

    def pubsub(self, **_: object) -> Refusing:
        return self

    def subscribe(self, *_: str) -> None:
        raise redis.ConnectionError

    def close(self) -> None:
        pass


@pytest.fixture
def notifications() -> Iterator[Notifications]:
    made = Notifications(Refusing())  # type: ignore[arg-type]
    yield made
    made.close()


@pytest.mark.parametrize("is_first", [True, False])
def test_after_an_interrupted_trigger_the_next_one_is_published(
    clean_redis: RedisServer, script: ScriptedBroker, is_first: bool
) -> None:
    benches = [PublisherHarness(clean_redis, script)]
    if not is_first:
        assert benches[0].publisher.submit(benches[0].trigger(0))

    def hand_over(bytecodes: OpcodeInterrupt) -> None:
        if is_first:  # its thread is to be started
            benches.append(PublisherHarness(clean_redis, script))
        bench = benches[-1]
        with suppress(Interrupted), bytecodes.traced():
            bench.publisher.submit(bench.trigger(0))
        script.messages.clear()
        bench.client.flushdb()
        eventually(lambda: bench.publisher.submit(bench.trigger(1)), "it is taken")
        assert bench.publisher.flush(MAX_WAIT_SECONDS)
        assert 1 in {number for numbers, _ in script.messages for number in numbers}
        if is_first:
            bench.close()

    for bytecodes in interrupts_at_each_opcode(publisher_module, triggers, threads, threading):
        hand_over(bytecodes)
    assert bytecodes.number > 50
    benches[0].close()


def test_an_interrupted_listener_is_removed_and_the_next_one_is_registered(notifications: Notifications) -> None:
    for bytecodes in interrupts_at_each_opcode(notifications_module, threads, threading):
        listener = None
        with suppress(Interrupted), bytecodes.traced():
            try:
                listener = notifications.listen({"channel": list})
            finally:
                if listener is not None:
                    listener.close()
        del listener
        eventually(lambda: listened_to(notifications)[0] == 0, "no listener is left")
    assert bytecodes.number > 50
    listener = notifications.listen({"channel": list})
    eventually(lambda: listened_to(notifications)[0] == 1, "it is registered")
    listener.close()
    eventually(lambda: listened_to(notifications) == (0, 0), "it is not")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # it dies of one
def test_a_publisher_that_has_died_is_replaced(bench: PublisherHarness, script: ScriptedBroker) -> None:
    def die() -> None:
        raise SystemExit

    assert bench.handle(bench.trigger(1)) == [True]
    thread = thread_of(bench.publisher)
    bench.publisher.run_in_background(die)
    thread.join(MAX_WAIT_SECONDS)  # until it has ended: its exception is reported last, and belongs to this test
    assert not is_running(bench.publisher)
    assert bench.publisher.submit(bench.trigger(2))
    assert bench.publisher.flush(MAX_WAIT_SECONDS)
    assert [numbers for numbers, _ in script.messages] == [[1], [2]]
