"""Flower exits on a signal, as any service does: while its broker is silent, and while there is none."""

from __future__ import annotations

import http.client
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from refresher.embedded import RedisServer, free_port
from tests.acceptance.conftest import ROOT
from tests.support.flower import Flower
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
    eventually(lambda: "failed" in flower.process.tail_of_log(1_000), "it has noticed")
    assert code_after(flower, number) == 0


def test_flower_exits_on_a_signal_if_there_never_was_a_broker(tmp_path: Path) -> None:
    flower = start(f"amqp://someone:unknown@127.0.0.1:{free_port()}//", tmp_path)
    eventually(lambda: "ailed" in flower.process.tail_of_log(1_000), "it has tried")
    assert code_after(flower, signal.SIGTERM) == 0
