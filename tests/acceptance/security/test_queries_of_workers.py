"""What ``doctor`` and ``status`` leave alone on the broker: workers' messages, and replies that come too late."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
from kombu import Connection
from kombu.transport.redis import Transport

from api_client import ReaderSettings
from api_client.config.broker import miss_queue, refresh_queue
from refresher.ops.broker import running_workers
from refresher.ops.doctor.findings import Level
from tests.support.doctor import run_check
from tests.support.redis_users import Users
from tests.support.waiting import MAX_WAIT_SECONDS

NAME = "late@host"
QUEUE = refresh_queue("cache", "redis://")


class LateWorker:
    """A worker by what it hears and says on the broker."""

    def __init__(self, channel: Any, connection: Connection) -> None:
        self._channel, self._connection = channel, connection

    def next_request(self) -> dict[str, Any]:
        while (heard := self._channel.get_message(timeout=MAX_WAIT_SECONDS))["type"] != "message":
            pass
        request: dict[str, Any] = json.loads(base64.b64decode(json.loads(heard["data"])["body"]))
        return request

    def reply(self, request: dict[str, Any], says: object) -> None:
        """Reply, also to who has deleted the queue meanwhile: as a worker does that had looked it up."""
        to, headers = request["reply_to"], {"ticket": request["ticket"]}
        queue = f"{to['routing_key']}.{to['exchange']}"
        self._connection.Producer().publish({NAME: says}, exchange="", routing_key=queue, headers=headers)


@pytest.fixture(autouse=True)
def long_brpop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the BRPOP that waits for replies outlast that wait, each time."""
    monkeypatch.setattr(Transport, "brpop_timeout", MAX_WAIT_SECONDS)


@pytest.fixture
def worker(users: Users) -> Iterator[LateWorker]:
    with users.client("broker", "worker") as client, client.pubsub() as channel:
        channel.subscribe("/0.celery.pidbox")
        with Connection(users.url("broker", "worker")) as connection:
            yield LateWorker(channel, connection)


@pytest.fixture
def admin(users: Users) -> Iterator[redis.Redis]:
    """The broker; a test fails if anybody was denied anything."""
    users.broker.forget_denied()
    with redis.Redis.from_url(users.broker.url()) as client:
        yield client
        client.flushdb()
    assert users.broker.denied() == set()


@pytest.fixture
def settings(users: Users, monkeypatch: pytest.MonkeyPatch) -> ReaderSettings:
    monkeypatch.setattr("refresher.ops.broker.LINK_SECONDS", MAX_WAIT_SECONDS)
    return ReaderSettings(broker_url=users.url("broker", "operator"))


def test_a_reply_that_comes_while_the_connection_is_closed_is_not_put_back(
    admin: redis.Redis, worker: LateWorker, settings: ReaderSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    late: list[dict[str, Any]] = []

    def close_late(self: Connection, close: Any = Connection.close) -> None:
        late.append(worker.next_request())
        worker.reply(late[-1], [])
        close(self)

    monkeypatch.setattr(Connection, "close", close_late)
    assert running_workers(settings) == []
    assert [request["method"] for request in late] == ["active_queues"]


@pytest.mark.promise("Contract and operation", "A worker's reply that comes late does not end the next request")
def test_a_late_reply_to_one_request_does_not_end_the_next(
    admin: redis.Redis, worker: LateWorker, settings: ReaderSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As kombu names the queue of replies when the second request's mailbox gets the address in memory of the first's.
    monkeypatch.setattr("kombu.pidbox.oid_from", lambda _: "address")
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(running_workers, settings)
        first = worker.next_request()
        worker.reply(first, [{"name": QUEUE}])
        second = worker.next_request()
        worker.reply(first, [])
        worker.reply(second, {"uptime": 7})
        (seen,) = asked.result(MAX_WAIT_SECONDS)
    assert (seen.name, seen.uptime) == (NAME, 7)


@pytest.mark.parametrize("other", [[{"name": "other.refresh"}], []], ids=["of another namespace", "of none"])
def test_workers_of_one_name_are_told_from_one_that_does_not_consume(
    admin: redis.Redis, worker: LateWorker, users: Users, settings: ReaderSettings, other: list[object]
) -> None:
    urls = {"redis_url": users.url("cache", "operator"), "broker_url": users.url("broker", "operator")}
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(run_check, "workers", **urls)
        request = worker.next_request()
        worker.reply(request, [{"name": QUEUE}, {"name": miss_queue("cache", "redis://")}])
        worker.reply(request, other)
        found = asked.result(MAX_WAIT_SECONDS)
        assert (found.level, found.message.partition(":")[0]) == (Level.WARNING, f"2 have the name {NAME}")
        seen = pool.submit(running_workers, settings)
        request = worker.next_request()
        worker.reply(request, [{"name": QUEUE}])
        worker.reply(request, other)
        worker.reply(worker.next_request(), {"uptime": 7})
        assert [one.name for one in seen.result(MAX_WAIT_SECONDS)] == [NAME]


@pytest.mark.promise("Contract and operation", "Requests to workers leave the messages of killed ones on the broker")
def test_messages_that_a_killed_worker_left_are_left_to_workers(users: Users, admin: redis.Redis) -> None:
    message = json.dumps([{"headers": {}, "properties": {}}, QUEUE, QUEUE])
    admin.hset("unacked", "tag", message)
    admin.zadd("unacked_index", {"tag": 0})  # taken in 1970
    urls = {"redis_url": users.url("cache", "operator"), "broker_url": users.url("broker", "operator")}
    found = run_check("workers", **urls)
    assert (found.level, found.message.partition(":")[0]) == (Level.PROBLEM, "none replies")
    assert admin.hgetall("unacked") == {b"tag": message.encode()}
