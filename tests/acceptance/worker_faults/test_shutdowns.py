"""SIGTERM to a worker: running loads are finished or abandoned in time, queued messages are left for another."""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from kombu import Connection

from api_client import CacheClient
from api_client.config.broker import queue_for, refresh_queue
from api_client.protocol import messages
from api_client.protocol.messages import RefreshReason, item_for
from api_client.trigger.broker import CeleryBroker
from refresher.embedded import GuardedProcess
from refresher.settings import WorkerSettings
from tests.acceptance.conftest import System
from tests.servers.rabbitmq_server import RabbitMqServer
from tests.support.requirements import IS_LONG
from tests.support.timing import Measured
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

BUDGETS = {"finishes": "55s", "hangs": "2s"}
"""What a load of the worker does, and CACHE_XFETCH_TIMEOUT."""
ROLES = [(pool, load) for pool in ("prefork", "threads", "solo") for load in BUDGETS]
PROCESSES_END_SECONDS = 15.0  # six workers of several processes each, on two cores
WAITING = 3


class Ending:
    """A worker of one pool, in a namespace of its own, that gets SIGTERM in the middle of a load."""

    def __init__(self, system: System, watchers: ThreadPoolExecutor, pool: str, load: str) -> None:
        self._system, self._watchers, self._name, self._load = system, watchers, f"{pool}-{load}", load
        changes = {
            "CACHE_XFETCH_TIMEOUT": BUDGETS[load],
            "CACHE_XFETCH_RETRY_ENABLED": "false",
            "CACHE_NAMESPACE": self._name,
        }
        self._kind = "timeout" if pool == "prefork" else "hard_timeout"
        self._bound_seconds = WorkerSettings.from_env(changes).hard_limit_seconds
        self.worker: GuardedProcess = system.start_worker("-P", pool, "-c", "1", ready=False, **changes)
        self._client: CacheClient = system.client(**changes)
        self._requested: list[str] = []

    def _params(self, what: str) -> dict[str, str]:
        return {"key": f"{self._name}-{what}", "hold": self._name if what == self._load else ""}

    def _refresh(self, what: str) -> None:
        self._client.refresh("long_lived", self._params(what))

    def _loads(self, what: str) -> int:
        return self._system.loads(f"{self._name}-{what}")

    def keep_one_for_later(self) -> None:
        """Send it a message with a countdown, which it takes at once and keeps in its memory."""
        url = self._system.env["CACHE_BROKER_URL"]
        broker = CeleryBroker(url, self._name)
        item = item_for(self._client.key("long_lived", self._params("later")), 0, RefreshReason.MANUAL)
        queue = queue_for(self._name, url, has_waiter=False)
        broker.app.send_task(messages.TASK_NAME, args=(messages.encode([item]),), queue=queue, countdown=1_800)
        broker.close()
        self._requested.append("later")

    def get_busy(self) -> None:
        """Start a load that goes on."""
        self._refresh(self._load)
        eventually(lambda: self._loads(self._load) == 1, f"{self._name}: it loads")

    def end(self) -> None:
        """Send it SIGTERM, and request more refreshes meanwhile."""
        os.kill(self.worker.pid, signal.SIGTERM)
        eventually(lambda: "Warm shutdown" in self.worker.log_file.read_text(), f"{self._name} begins to end")
        self._end = self._watchers.submit(self._wait)
        for number in range(WAITING):
            self._refresh(f"waits-{number}")
            self._requested.append(f"waits-{number}")
        if self._load == "finishes":
            self._system.open_gate(self._name)

    def verify(self) -> None:
        """Check that it has ended in time and in order, and each refresh was done once or waits for another worker."""
        exit_code, took = self._end.result()
        assert exit_code == 0, self.worker.tail_of_log()
        took.at_most(self._bound_seconds + PROCESSES_END_SECONDS)
        if self._load == "finishes":
            assert self._client.get_entry("long_lived", self._params("finishes"), timeout=0.1).value["load"] == 1
        else:
            record = self._system.record(self._client.key("long_lived", self._params("hangs")))
            assert (record["state"], record["kind"]) == ("cooling", self._kind)
        left = self._left()
        # One may have been on its way when the worker got the signal.
        done = [what for what in self._requested if self._loads(what)]
        for what in done:
            self._client.get_entry("long_lived", self._params(what), timeout=0.1)
        # RabbitMQ redelivers messages that were processed too late to be acknowledged; these are skipped.
        assert sorted([*(set(left) - {self._load}), *done]) == sorted(self._requested), self._name
        assert len(set(left)) == len(left)

    def _wait(self) -> tuple[int | None, Measured]:
        with Measured() as took:
            exit_code = self.worker.wait(self._bound_seconds + MAX_WAIT_SECONDS)
        return exit_code, took

    def _left(self) -> list[str]:
        """Take all that waits out of the queue."""
        url = self._system.env["CACHE_BROKER_URL"]
        with Connection(url) as connection:
            channel, queue = connection.default_channel, refresh_queue(self._name, url)
            bodies = [json.loads(message.body) for message in iter(lambda: channel.basic_get(queue, no_ack=True), None)]
        keys = [item.decoded_params["key"] for ((argument,), *_) in bodies for item in messages.decode(argument)]
        return [key.removeprefix(f"{self._name}-") for key in keys]


@pytest.mark.failure("W7")
@pytest.mark.usefixtures("patient_publishers")
@pytest.mark.timeout(5 * MAX_WAIT_SECONDS)
@pytest.mark.parametrize("broker", ["redis", pytest.param("rabbitmq", marks=pytest.mark.longer)])
def test_a_worker_exits_in_time_on_sigterm_and_leaves_nothing_half_done(
    system_without_graph: System, request: pytest.FixtureRequest, stack: ExitStack, broker: str
) -> None:
    system = system_without_graph
    # What a pool does on SIGTERM is the same over each broker; what becomes of messages is not.
    roles = ROLES if broker == "redis" or IS_LONG else ROLES[: len(BUDGETS)]
    if broker == "rabbitmq":
        server: RabbitMqServer = request.getfixturevalue("rabbitmq")
        system.env["CACHE_BROKER_URL"] = server.url
        for pool, load in roles:
            server.forget_queues(f"{pool}-{load}")
    watchers = stack.enter_context(ThreadPoolExecutor(len(roles)))
    endings = [Ending(system, watchers, pool, load) for pool, load in roles]
    for ending in endings:
        eventually(lambda: "ready." in ending.worker.log_file.read_text(), "it is ready")  # noqa: B023
    for ending in endings:
        if broker == "redis":  # RabbitMQ itself keeps delayed messages
            ending.keep_one_for_later()
        ending.get_busy()
        ending.end()
    for ending in endings:
        ending.verify()
    eventually(lambda: not system.broker.exists("unacked", "unacked_index"), "no message is left unacknowledged")
