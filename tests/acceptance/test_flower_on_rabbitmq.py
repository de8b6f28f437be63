"""Flower's page of queues on RabbitMQ, which reports lengths through its management plugin only."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from api_client.protocol.keys import make_key
from api_client.protocol.messages import RefreshReason, item_for
from api_client.trigger.broker import CeleryBroker
from tests.acceptance.conftest import ROOT
from tests.servers.rabbitmq_server import ManagedRabbitMq
from tests.support.flower import PASSWORD, USER, Flower
from tests.support.waiting import eventually

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
