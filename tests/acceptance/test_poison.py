"""Any message at all, on either broker: the worker drops it, counts it by reason, says so without its body, goes on."""

from __future__ import annotations

import base64
import json
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import amqp
import psutil
import pytest
from kombu import Connection

from api_client.broker_settings import MOST_REDELIVERIES, queue_for
from refresher.embedded import ArcadeDbServer, GuardedProcess, RedisServer
from tests.acceptance.conftest import System
from tests.servers.rabbitmq_server import RabbitMqServer
from tests.support.poison import (
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
from tests.support.requirements import full_runs_only
from tests.support.telling_app import TOLD
from tests.support.waiting import eventually

pytestmark = full_runs_only

CASES = [("redis", name) for name in POISON] + [("rabbitmq", name) for name in POISON if name not in NOT_ON_RABBITMQ]

LOST = "Connection to broker lost"


@dataclass
class Running:
    """One worker for all of them: what one breaks, the next one finds."""

    system: System
    worker: GuardedProcess
    put: Callable[[Envelope], object]
    waiting: Callable[[], int]

    def still_refreshes(self) -> None:
        value = self.system.client().get("long_lived", {"key": uuid.uuid4().hex}, timeout=20)
        assert value["load"] == 1
        assert self.worker.poll() is None

    def said(self) -> str:
        return self.worker.log_file.read_text()

    def dropped(self) -> dict[str, int]:
        told = self.system.control.hgetall(TOLD)
        return {word: int(count) for word, count in told.items() if word.startswith("dropped: ")}

    def eventually_dropped(self, before: dict[str, int], reason: str, count: int = 1) -> None:
        wanted = before | {f"dropped: {reason}": before.get(f"dropped: {reason}", 0) + count}
        eventually(lambda: self.dropped() == wanted, 10, f"{wanted} is what was counted")


def start(stack: ExitStack, control: RedisServer, graph: ArcadeDbServer, folder: Any, **env: str) -> System:
    system = System(stack, stack.enter_context(RedisServer.start()), control, graph, folder)
    system.env |= env
    return system


@pytest.fixture(scope="module")
def on_redis(
    redis_server: RedisServer, arcadedb: ArcadeDbServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    with ExitStack() as stack:
        system = start(stack, redis_server, arcadedb, tmp_path_factory.mktemp("poison"))
        worker = system.start_worker("-c", "1", app="tests.support.telling_app")
        yield Running(
            system,
            worker,
            lambda message: system.broker.lpush(QUEUE, json.dumps(message)),
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
        env = {"CELERY_BROKER_URL": rabbitmq.url, "CACHE_NAMESPACE": namespace}
        system = start(stack, redis_server, arcadedb, tmp_path_factory.mktemp("poison"), **env)
        worker = system.start_worker("-c", "1", app="tests.support.telling_app")
        queue = queue_for(namespace, rabbitmq.url, someone_waits=True)
        connection = stack.enter_context(
            Connection(rabbitmq.url, transport_options={"confirm_publish": True, "read_timeout": 10})
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

        yield Running(system, worker, put, lambda: channel.queue_declare(queue.name, passive=True).message_count)


@pytest.fixture(params=["redis", "rabbitmq"])
def running(request: pytest.FixtureRequest) -> Running:
    """Both brokers."""
    found: Running = request.getfixturevalue(f"on_{request.param}")
    return found


def test_the_message_that_the_others_are_made_of_is_none_of_them(running: Running) -> None:
    before = running.dropped()
    running.put(envelope(headers={"expires": in_days(1), "timelimit": [30, 20.5]}))
    running.still_refreshes()
    assert running.dropped() == before


@pytest.mark.parametrize(("running", "poison"), CASES, indirect=["running"])
def test_the_same_worker_goes_on_after_a_malformed_message(running: Running, poison: str) -> None:
    reason, make = POISON[poison]
    before = running.dropped()
    running.put(make())
    running.still_refreshes()
    running.eventually_dropped(before, reason)
    said = running.said()
    assert SECRET not in said
    assert "Traceback" not in said
    # Gone for good: it is neither redelivered nor kept until it is due.
    eventually(lambda: not running.waiting(), 10, "nothing is left unacknowledged")


@pytest.mark.parametrize("garbage", NO_ENVELOPE)
def test_the_same_worker_goes_on_after_what_is_no_envelope(on_redis: Running, garbage: str) -> None:
    before = on_redis.dropped()
    on_redis.system.broker.lpush(QUEUE, NO_ENVELOPE[garbage]())
    on_redis.still_refreshes()
    on_redis.eventually_dropped(before, "no_envelope")
    said = on_redis.said()
    assert "Unrecoverable error" not in said
    assert SECRET not in said


def test_what_amqp_s_own_client_can_t_read_comes_back_a_few_times_and_is_gone(on_rabbitmq: Running) -> None:
    counted, noticed = on_rabbitmq.dropped().get("dropped: no_envelope", 0), on_rabbitmq.said().count(LOST)
    on_rabbitmq.put(no_text())
    # Each delivery costs the connection, and RabbitMQ delivers it again; its delivery limit ends that.
    deliveries = 1 + MOST_REDELIVERIES
    eventually(lambda: on_rabbitmq.said().count(LOST) == noticed + deliveries, 20, "it has come for the last time")
    eventually(lambda: not on_rabbitmq.waiting(), 10, "it is gone")
    on_rabbitmq.still_refreshes()
    assert on_rabbitmq.said().count(LOST) == noticed + deliveries
    # The last frame of one that came while the worker was being set up is all that is seen of it.
    assert deliveries - 1 <= on_rabbitmq.dropped()["dropped: no_envelope"] - counted <= deliveries
    assert "Unrecoverable error" not in on_rabbitmq.said()


def test_a_message_whose_content_is_none_of_ours_is_counted_by_the_pool(running: Running) -> None:
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
    eventually(
        lambda: peaks.append(process.memory_info().rss) or running.dropped() != before, 10, "it has been dropped"
    )
    running.still_refreshes()
    running.eventually_dropped(before, "undecodable")
    assert max(*peaks, process.memory_info().rss) - memory_before < 100 << 20
