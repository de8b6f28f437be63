"""A worker comes back by itself after each outage of its broker, on both brokers."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import pytest

from api_client import CacheClient
from refresher.embedded import GuardedProcess, RedisServer
from tests.acceptance.conftest import System
from tests.servers.rabbitmq_server import RabbitMqServer
from tests.support.fault_proxy import FaultProxy
from tests.support.timing import promptly
from tests.support.waiting import eventually

BACK_WITHIN_SECONDS = 10.0


@dataclass
class Outage:
    """A worker behind two proxies, one before the other, and a reader that no fault meets."""

    near: FaultProxy
    far: FaultProxy
    broker_url: str
    worker: GuardedProcess
    client: CacheClient

    def half_open(self) -> None:
        """What is connected goes silent for ever, on both sides; new connections pass."""
        self.near.leads_to(self.broker_url)
        self.far.hangs()

    def consumes(self) -> bool:
        """Ask for a load, and tell whether it came soon."""
        return self.client.get("long_lived", {"key": uuid.uuid4().hex}, timeout=1, default=None) is not None


@pytest.fixture(params=["redis", "rabbitmq"])
def broker_url(request: pytest.FixtureRequest, stack: ExitStack) -> str:
    if request.param == "redis":
        return stack.enter_context(RedisServer.start()).url(0)
    server: RabbitMqServer = request.getfixturevalue("rabbitmq")
    return server.url


@pytest.fixture
def outage(stack: ExitStack, system: System, broker_url: str) -> Iterator[Outage]:
    far = stack.enter_context(FaultProxy.before(broker_url))
    near = stack.enter_context(FaultProxy.before(far.url(broker_url)))
    system.env["CACHE_NAMESPACE"] = f"t{uuid.uuid4().hex[:8]}"
    worker = system.start_worker(CACHE_BROKER_URL=near.url(broker_url))
    client = system.client(CACHE_BROKER_URL=broker_url)
    made = Outage(near, far, broker_url, worker, client)
    eventually(made.consumes, "the worker consumes")
    yield made
    far.passes()
    near.passes()


def refused(outage: Outage) -> None:
    outage.near.refuses()
    eventually(lambda: "Trying again in" in outage.worker.tail_of_log(10_000), "the worker has noticed")
    # For long enough that pauses which grow would show: Celery's own would be 2, 4, 6, 8 … seconds.
    tries = outage.worker.log_file.read_text().count("Trying again in")
    eventually(lambda: outage.worker.log_file.read_text().count("Trying again in") >= tries + 9, "it goes on trying")
    outage.near.passes()


def hung(outage: Outage) -> None:
    outage.near.hangs()
    eventually(lambda: "Connection to broker lost" in outage.worker.log_file.read_text(), "the worker has noticed")
    outage.near.passes()


FAULTS: dict[str, Callable[[Outage], None]] = {
    "refused": refused,
    "hung": hung,
    "half open": Outage.half_open,
    "cut": lambda outage: outage.near.cuts(),
    "cut orderly": lambda outage: partial(outage.near.cuts, orderly=True)(),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_worker_consumes_again_soon_after_the_outage(outage: Outage, fault: str) -> None:
    FAULTS[fault](outage)
    promptly(outage.consumes, "the worker consumes again", BACK_WITHIN_SECONDS)
    assert outage.worker.poll() is None
