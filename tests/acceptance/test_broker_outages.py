"""A worker recovers by itself after each outage of RabbitMQ; of Redis as a broker: `worker_faults/test_broker.py`."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import pytest

from api_client import CacheClient
from refresher.embedded import GuardedProcess, RedisServer
from tests.acceptance.conftest import NO_GRAPH, System
from tests.servers.rabbitmq_server import RabbitMqServer
from tests.support.fault_proxy import FaultProxy
from tests.support.timing import promptly
from tests.support.waiting import eventually

BACK_WITHIN_SECONDS = 10.0


@dataclass
class Outage:
    """A worker behind two proxies, one before the other, and a reader that no fault affects."""

    near: FaultProxy
    far: FaultProxy
    broker_url: str
    worker: GuardedProcess
    client: CacheClient
    _said_before: int = 0

    def begin(self) -> None:
        """Forget what the worker has logged until now."""
        self._said_before = len(self.worker.log_file.read_text())

    def times_said(self, words: str) -> int:
        """How often the worker has logged this since the outage began."""
        return self.worker.log_file.read_text()[self._said_before :].count(words)

    def half_open(self) -> None:
        """Silence existing connections forever, on both sides; new ones pass."""
        self.near.leads_to(self.broker_url)
        self.far.hangs()

    def consumes(self) -> bool:
        """Request a load, and return whether it came soon."""
        return self.client.get("long_lived", {"key": uuid.uuid4().hex}, timeout=1, default=None) is not None


@pytest.fixture(scope="module")
def shared_outage(
    rabbitmq: RabbitMqServer, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Outage]:
    """One worker for all outages."""
    with ExitStack() as stack:
        cache = stack.enter_context(RedisServer.start())
        far = stack.enter_context(FaultProxy.before(rabbitmq.url))
        near = stack.enter_context(FaultProxy.before(far.url(rabbitmq.url)))
        system = System(stack, cache, redis_server, NO_GRAPH, tmp_path_factory.mktemp("outages"))
        system.env["CACHE_NAMESPACE"] = f"t{uuid.uuid4().hex[:8]}"
        worker = system.start_worker(CACHE_BROKER_URL=near.url(rabbitmq.url))
        yield Outage(near, far, rabbitmq.url, worker, system.client(CACHE_BROKER_URL=rabbitmq.url))


@pytest.fixture
def outage(shared_outage: Outage) -> Iterator[Outage]:
    """A worker that consumes through both proxies, and whose log so far is ignored."""
    eventually(shared_outage.consumes, "the worker consumes")
    shared_outage.begin()
    yield shared_outage
    shared_outage.far.passes()
    shared_outage.near.passes()
    shared_outage.near.leads_to(shared_outage.far.url(shared_outage.broker_url))
    shared_outage.near.cuts()  # the replacement of a half-open connection bypasses the other proxy


def refused(outage: Outage) -> None:
    outage.near.refuses()
    # For long enough that pauses which grow would show: Celery's own would be 2, 4, 6, 8 … seconds.
    eventually(lambda: outage.times_said("Trying again in") > 9, "the worker has noticed, and goes on trying")
    outage.near.passes()


def hung(outage: Outage) -> None:
    outage.near.hangs()
    eventually(lambda: outage.times_said("Connection to broker lost"), "the worker has noticed")
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
