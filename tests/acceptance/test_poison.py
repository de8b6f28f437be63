"""Any malformed message, on either broker: the worker drops it, counts it by reason, logs no body, and goes on."""

from __future__ import annotations

import base64
import itertools
import json
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import amqp
import psutil
import pytest
from celery import Celery
from kombu import Connection

from api_client.config.broker import queue_for
from refresher.embedded import ArcadeDbServer, GuardedProcess, RedisServer
from tests.acceptance.conftest import System
from tests.servers.rabbitmq_server import RabbitMqServer
from tests.support.event_counting_app import EVENT_COUNTS
from tests.support.poison import (
    FORGED,
    NO_ENVELOPE,
    NOT_ON_RABBITMQ,
    POISON,
    QUEUE,
    SECRET,
    Envelope,
    envelope,
    in_days,
    no_text,
)
from tests.support.timing import Measured
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

CASES = [("redis", name) for name in POISON] + [("rabbitmq", name) for name in POISON if name not in NOT_ON_RABBITMQ]

LOST = "Connection to broker lost"
PIECES, PIECES_SECONDS = 300, 20


@dataclass
class Running:
    """One worker for all messages: what one breaks shows in the next test."""

    system: System
    worker: GuardedProcess
    put: Callable[[Envelope], object]
    rubbish: list[Callable[[], object]]
    """Each puts another kind of malformed message into the queue."""
    waiting: Callable[[], int]

    def still_refreshes(self) -> None:
        value = self.system.client().get("long_lived", {"key": uuid.uuid4().hex})
        assert value["load"] == 1
        assert self.worker.poll() is None
        assert LOST not in self.said()

    def said(self) -> str:
        return self.worker.log_file.read_text()

    def dropped(self) -> dict[str, int]:
        counts = self.system.control.hgetall(EVENT_COUNTS)
        return {word: int(count) for word, count in counts.items() if word.startswith("dropped: ")}

    def eventually_dropped(self, before: dict[str, int], reason: str, count: int = 1) -> None:
        wanted = before | {f"dropped: {reason}": before.get(f"dropped: {reason}", 0) + count}
        eventually(lambda: self.dropped() == wanted, f"{wanted} is what was counted")


def start(stack: ExitStack, control: RedisServer, graph: ArcadeDbServer, folder: Any, **env: str) -> System:
    system = System(stack, stack.enter_context(RedisServer.start()), control, graph, folder)
    system.env |= env
    return system


def rubbish_by(put: Callable[[Envelope], object], kinds: Iterable[str]) -> list[Callable[[], object]]:
    """Return, for each kind, what puts such a message into the queue."""
    return [partial(lambda make: put(make()), POISON[kind][1]) for kind in sorted(kinds)]


@pytest.fixture(scope="module")
def on_redis(
    redis_server: RedisServer, arcadedb: ArcadeDbServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    with ExitStack() as stack:
        system = start(stack, redis_server, arcadedb, tmp_path_factory.mktemp("poison"))
        worker = system.start_worker("-c", "1", app="tests.support.event_counting_app")
        system.until_commands_are_taken()

        def put(message: Envelope) -> None:
            system.broker.lpush(QUEUE, json.dumps(message))

        def put_raw(make: Callable[[], bytes]) -> None:
            system.broker.lpush(QUEUE, make())

        yield Running(
            system,
            worker,
            put,
            [partial(put_raw, make) for make in NO_ENVELOPE.values()] + rubbish_by(put, POISON),
            lambda: system.broker.llen(QUEUE) + system.broker.hlen("unacked"),
        )


@pytest.fixture(scope="module")
def on_rabbitmq(
    redis_server: RedisServer,
    arcadedb: ArcadeDbServer,
    rabbitmq: RabbitMqServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Running]:
    with ExitStack() as stack:
        namespace = f"t{uuid.uuid4().hex[:8]}"
        env = {"CACHE_BROKER_URL": rabbitmq.url, "CACHE_NAMESPACE": namespace}
        system = start(stack, redis_server, arcadedb, tmp_path_factory.mktemp("poison"), **env)
        worker = system.start_worker("-c", "1", app="tests.support.event_counting_app")
        queue = queue_for(namespace, rabbitmq.url, has_waiter=True)
        connection = stack.enter_context(
            Connection(rabbitmq.url, transport_options={"confirm_publish": True, "read_timeout": MAX_WAIT_SECONDS})
        )
        channel = connection.default_channel

        def put(message: Envelope) -> None:
            made = amqp.Message(
                base64.b64decode(message["body"]),
                content_type=message["content-type"],
                content_encoding=message["content-encoding"],
                application_headers=message["headers"],
                delivery_mode=2,
                **message.get("more", {}),
            )
            channel.basic_publish(made, exchange=queue.exchange.name, routing_key=queue.routing_key)

        kinds = POISON.keys() - NOT_ON_RABBITMQ
        rubbish = [lambda: put(no_text()), *rubbish_by(put, kinds)]
        yield Running(
            system, worker, put, rubbish, lambda: channel.queue_declare(queue.name, passive=True).message_count
        )


@pytest.fixture(params=["redis", "rabbitmq"])
def running(request: pytest.FixtureRequest) -> Running:
    """Both brokers."""
    found: Running = request.getfixturevalue(f"on_{request.param}")
    return found


def test_the_valid_message_behind_the_malformed_ones_is_accepted(running: Running) -> None:
    before = running.dropped()
    running.put(envelope(headers={"expires": in_days(1), "timelimit": [30, 20.5]}))
    running.still_refreshes()
    assert running.dropped() == before


@pytest.mark.promise("Refreshing", "A worker survives any message")
@pytest.mark.parametrize(("running", "poison"), CASES, indirect=["running"])
def test_the_same_worker_goes_on_after_a_malformed_message(running: Running, poison: str) -> None:
    reason, make = POISON[poison]
    before = running.dropped()
    running.put(make())
    running.still_refreshes()
    running.eventually_dropped(before, reason)
    said = running.said()
    assert SECRET not in said
    assert FORGED not in said
    assert "Traceback" not in said
    # Gone for good: it is neither redelivered nor kept until it is due.
    eventually(lambda: not running.waiting(), "nothing is left unacknowledged")


@pytest.mark.parametrize("garbage", NO_ENVELOPE)
def test_the_same_worker_goes_on_after_an_invalid_envelope(on_redis: Running, garbage: str) -> None:
    before = on_redis.dropped()
    on_redis.system.broker.lpush(QUEUE, NO_ENVELOPE[garbage]())
    on_redis.still_refreshes()
    on_redis.eventually_dropped(before, "no_envelope")
    said = on_redis.said()
    assert "Unrecoverable error" not in said
    assert SECRET not in said


@pytest.mark.parametrize("body", [b"{}", b""], ids=["a body", "no body"])
def test_a_message_that_py_amqp_cannot_decode_is_rejected_on_first_delivery(on_rabbitmq: Running, body: bytes) -> None:
    before = on_rabbitmq.dropped()
    on_rabbitmq.put(no_text(body))
    on_rabbitmq.still_refreshes()
    on_rabbitmq.eventually_dropped(before, "no_envelope")
    eventually(lambda: not on_rabbitmq.waiting(), "it is gone")
    assert SECRET not in on_rabbitmq.said()


def test_an_invalid_envelope_on_the_remote_control_channel_is_dropped(on_redis: Running) -> None:
    before, broker = on_redis.dropped(), on_redis.system.broker
    database = broker.connection_pool.connection_kwargs["db"]
    assert broker.publish(f"/{database}.celery.pidbox", json.dumps({"body": SECRET})) == 1
    on_redis.eventually_dropped(before, "no_envelope")
    on_redis.still_refreshes()


def test_a_remote_control_message_forges_no_log_line(running: Running) -> None:
    with Celery(broker=running.system.env["CACHE_BROKER_URL"], set_as_current=False) as sender:
        sender.control.revoke(f"before{FORGED}")
    eventually(lambda: "before" in running.said(), "the worker has logged it")
    assert FORGED not in running.said()
    assert repr(FORGED)[1:-1] in running.said(), "it is shown, escaped"
    running.still_refreshes()


@pytest.mark.parametrize("name", ["query", "version", "ticket"])
def test_an_item_of_a_message_forges_no_log_line(running: Running, name: str) -> None:
    before = running.said()
    item = {"query": "long_lived", "params": '{"key": "a"}', name: f"x{FORGED}"}
    running.put(envelope(body=[[{"v": 1, "items": [item]}], {}, {}]))
    running.still_refreshes()
    assert FORGED not in running.said()
    assert len(running.said()) > len(before)


def test_hundreds_of_malformed_messages_cost_a_worker_seconds_and_not_minutes(running: Running) -> None:
    counted = sum(running.dropped().values())
    with Measured() as took:
        for put_one in itertools.islice(itertools.cycle(running.rubbish), PIECES):
            put_one()
        running.still_refreshes()
    took.at_most(PIECES_SECONDS)
    eventually(lambda: sum(running.dropped().values()) == counted + PIECES, "all have been dropped")
    assert running.said().count("rejected a message") < PIECES


def test_a_message_with_unrecognised_content_is_dropped_and_counted(running: Running) -> None:
    before = running.dropped()
    running.put(envelope(body=[[{"v": 99}], {}, {}]))
    running.still_refreshes()
    running.eventually_dropped(before, "not_ours")


def test_a_compressed_message_is_never_expanded(running: Running) -> None:
    process = psutil.Process(running.worker.pid)
    packer = zlib.compressobj()
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(600)) + packer.flush()
    before, memory_before, peaks = running.dropped(), process.memory_info().rss, [0]
    running.put(envelope(body=bomb, headers={"compression": "application/x-gzip"}))
    eventually(lambda: peaks.append(process.memory_info().rss) or running.dropped() != before, "it has been dropped")
    running.still_refreshes()
    running.eventually_dropped(before, "undecodable")
    assert max(*peaks, process.memory_info().rss) - memory_before < 100 << 20
