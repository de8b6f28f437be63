"""Flower exits on a signal while its broker is silent or gone; on RabbitMQ its management plugin has the lengths."""

from __future__ import annotations

import http.client
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from api_client.protocol.keys import make_key
from api_client.protocol.messages import RefreshReason, item_for
from api_client.trigger.broker import CeleryBroker
from refresher.embedded import RedisServer, free_port
from tests.acceptance.conftest import ROOT
from tests.servers.rabbitmq_server import ManagedRabbitMq
from tests.support.flower import PASSWORD, USER, Flower
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

LOST: dict[str, Callable[[RedisServer], None]] = {
    "silent": lambda server: os.kill(server.pid, signal.SIGSTOP),
    "gone": lambda server: server.kill(),
}


@pytest.fixture
def broker() -> Iterator[RedisServer]:
    with RedisServer.start() as server:
        yield server
        if server.is_running:
            os.kill(server.pid, signal.SIGCONT)


def start(url: str, folder: Path) -> Flower:
    flower = Flower({**os.environ, "PYTHONPATH": str(ROOT), "CACHE_BROKER_URL": url}, folder)
    eventually(lambda: flower.fetch("/healthcheck", password=None)[0] == http.client.OK, "it answers")
    return flower


def code_after(flower: Flower, number: signal.Signals) -> int | None:
    """Return its exit code after the signal; None: it did not end."""
    try:
        os.kill(flower.process.pid, number)
        return flower.process.wait(MAX_WAIT_SECONDS)
    finally:
        flower.process.kill()


@pytest.mark.parametrize(
    ("how", "number"), [("silent", signal.SIGTERM), ("gone", signal.SIGINT)], ids=["silent", "gone"]
)
def test_flower_exits_on_a_signal_while_its_broker_is_silent_or_gone(
    broker: RedisServer, tmp_path: Path, how: str, number: signal.Signals
) -> None:
    flower = start(broker.url(1), tmp_path)
    LOST[how](broker)
    eventually(lambda: "failed" in flower.process.log_file.read_text(), "it has noticed")
    assert code_after(flower, number) == 0


def test_flower_exits_on_a_signal_if_there_never_was_a_broker(tmp_path: Path) -> None:
    flower = start(f"amqp://someone:unknown@127.0.0.1:{free_port()}//", tmp_path)
    eventually(lambda: "ailed" in flower.process.log_file.read_text(), "it has tried")
    assert code_after(flower, signal.SIGTERM) == 0


ROW = re.compile(r"<tr id=[^>]*>(.*?)</tr>", re.DOTALL)
CELL = re.compile(r"<td[^>]*>(.*?)</td>", re.DOTALL)


@pytest.fixture(scope="module")
def managed() -> Iterator[ManagedRabbitMq]:
    with ManagedRabbitMq.start() as server:
        yield server


def lengths_shown(flower: Flower) -> dict[str, str]:
    """How many messages the page says are in each queue."""
    rows = [CELL.findall(row) for row in ROW.findall(flower.fetch("/broker")[1].decode())]
    return {name: messages for name, messages, *_ in rows}


def test_flower_shows_queue_lengths_on_rabbitmq_with_a_read_only_user(managed: ManagedRabbitMq, tmp_path: Path) -> None:
    broker = CeleryBroker(managed.url, "cache")
    for number in range(3):
        item = item_for(make_key("cache", "waiting", {"n": number}, 1), 1, RefreshReason.MISS)
        broker.publish([item], has_waiter=number == 0)
    broker.close()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "CACHE_BROKER_URL": managed.url}
    flower = Flower(env, tmp_path, FLOWER_BASIC_AUTH=f"{USER}:{PASSWORD}", FLOWER_BROKER_API=managed.api_url)
    try:
        expected = {"cache.refresh.quorum": "2", "cache.refresh-miss.quorum": "1"}
        eventually(lambda: lengths_shown(flower) == expected, "the page shows both lengths")
        assert managed.password not in flower.fetch("/broker")[1].decode()
    finally:
        flower.process.kill()
    assert managed.password not in flower.process.log_file.read_text()
