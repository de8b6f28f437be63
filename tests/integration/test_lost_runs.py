"""A pool process killed between any two steps of a run: how the main process ends the run, on a real Redis."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import msgspec
import pytest
import redis
from kombu.exceptions import OperationalError

from api_client.protocol import lease, messages
from api_client.protocol.lease import AcquireStatus, Call
from api_client.protocol.messages import RefreshItem, RefreshReason
from api_client.transport.scripts import LeaseStore
from api_client.trigger.broker import Broker
from refresher.embedded import GuardedProcess, RedisServer
from refresher.errors import LoadFailed
from refresher.flow.outcome import Outcome, OutcomeKind
from refresher.flow.ports import RefreshDeps, WorkerEvents
from refresher.flow.refresh import Refresher
from refresher.graph import values
from refresher.graph.failures import classify_error
from refresher.ops.forks import fork_gate
from refresher.queries import Loaded, Registry, query
from refresher.settings import WorkerSettings
from refresher.worker.celery_fixes.lost_runs import MAX_ATTEMPTS, RefreshRequest
from refresher.worker.runtime import Runtime
from tests.support.event_recorder import WorkerEventRecorder
from tests.support.lease_steps import StepByStep
from tests.support.waiting import MAX_WAIT_SECONDS

LOST = LoadFailed("worker_lost", "its process is gone", is_transient=True, max_attempts=MAX_ATTEMPTS)
REGISTRY = Registry()


@query("friends_of", ttl="1h", grace="1h", into=REGISTRY)
def friends_of(tx: Any, person_id: int) -> None:
    """Never called: the test's own origin is."""


class Doomed(StepByStep):
    """A process of the pool that is killed at one point of its run."""

    def __init__(self, store: LeaseStore, place: str, failure: LoadFailed | None) -> None:
        self._store, self._place, self._failure = store, place, failure

    def run(self, call: Call[Any]) -> Any:
        self._come_to(f"before {call.script}")
        reply = self._store.run(call)
        self._come_to(f"after {call.script}")
        return reply

    def load(self, *_: Any) -> list[Loaded]:
        self._come_to("in the load")
        if self._failure is not None:
            raise self._failure
        return [Loaded(["Ann"])]

    def _come_to(self, place: str) -> None:
        if place == self._place:
            os.kill(os.getpid(), signal.SIGKILL)


class Main:
    """The worker's main process, and the Redis that it shares with its children."""

    def __init__(self, url: str) -> None:
        self.settings = WorkerSettings(redis_url=url, namespace=f"t{uuid.uuid4().hex[:8]}", cooling_seconds=30.0)
        self.events = WorkerEventRecorder()
        self.runtime = Runtime(self.settings, cast("Broker", None), events=self.events, queries=REGISTRY)
        self.redis = redis.Redis.from_url(url, decode_responses=True, encoding_errors="backslashreplace")
        self.item = RefreshItem(query="friends_of", params='{"person_id":1}', reason=RefreshReason.STALE)
        self.by = ""

    def record(self) -> dict[str, str]:
        return cast("dict[str, str]", self.redis.hgetall(self.item.key(self.settings.namespace).record))

    def let_one_die(self, place: str, failure: LoadFailed | None = None) -> None:
        """Have a child handle the item until it is killed."""
        pid = os.fork()
        if not pid:
            try:
                self._refresher(Doomed(LeaseStore(redis.Redis.from_url(self.settings.redis_url)), place, failure))(
                    self.item, f"w@{socket.gethostname()}:{os.getpid()}"
                )
            finally:
                os._exit(1)
        assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL, f"it never came to {place!r}"
        self.by = f"w@{socket.gethostname()}:{pid}"

    def end_what_it_held(self) -> Outcome | None:
        run = self.runtime.run_held_by(self.item, self.by)
        return None if run is None else self.runtime.refresher.finish_lost_run(run, LOST)

    def _refresher(self, doomed: Doomed) -> Callable[[RefreshItem, str], Outcome]:
        return Refresher(
            self.settings,
            RefreshDeps(
                lease_steps=doomed, origin=doomed, encode=values.encode, registry=REGISTRY,
                keep_leases=lambda _: nullcontext(), publish=lambda _: None, write_dead_letter=lambda *_: None,
                monotonic=time.monotonic, sleep=lambda _: None, events=WorkerEvents(), failure_of=classify_error,
                uniform=lambda: 1.0,
            ),
        ).refresh  # fmt: skip


@pytest.fixture
def main(clean_redis: RedisServer) -> Iterator[Main]:
    made = Main(clean_redis.url())
    with closing(made.runtime), closing(made.redis):
        yield made


HOLDING = ["after acquire", "in the load", "before commit"]
PASSING = LoadFailed("deadlock", "will pass", is_transient=True)
LASTING = LoadFailed("syntax", "will not", is_transient=False)
DONE: list[tuple[str, LoadFailed | None, str]] = [
    ("before acquire", None, ""),
    ("after commit", None, ""),
    ("after retry", PASSING, "retrying"),
    ("after fail", LASTING, "cooling"),
]


@pytest.mark.parametrize("place", [*HOLDING, "before retry", "before fail"])
def test_a_lost_run_is_retried_once_and_then_dead_lettered(main: Main, place: str) -> None:
    main.let_one_die(place, {"before retry": PASSING, "before fail": LASTING}.get(place))
    outcome = main.end_what_it_held()
    assert outcome is not None
    assert (outcome.kind, outcome.why) == (OutcomeKind.RETRY, "worker_lost")
    assert main.events.all == [("retried", "worker_lost", 1)]
    assert main.record()["state"] == "retrying"
    assert outcome.again is not None
    assert (outcome.again.attempt, 1 <= outcome.pause_seconds <= 15) == (2, True)
    # The ticket is good: the next attempt goes on with it, and is the last one.
    main.item = outcome.again
    main.let_one_die("in the load")
    outcome = main.end_what_it_held()
    assert outcome is not None
    assert (outcome.kind, outcome.why, outcome.again) == (OutcomeKind.FAILED, "worker_lost", None)
    assert main.events.all[1:] == [("failed", "worker_lost", 2)]
    assert main.record()["state"] == "cooling"
    (letter,) = main.runtime.dead_letters.newest()
    assert (letter.kind, letter.attempts, letter.params) == ("worker_lost", 2, {"person_id": 1})


@pytest.mark.parametrize(("place", "failure", "state"), DONE, ids=[place for place, *_ in DONE])
def test_a_run_that_had_ended_before_the_crash_is_not_changed(
    main: Main, place: str, failure: LoadFailed | None, state: str
) -> None:
    main.let_one_die(place, failure)
    before = main.record()
    assert before.get("state", "") == state
    assert main.end_what_it_held() is None
    assert main.record() == before
    assert main.events.all == []


def test_earlier_attempts_that_were_taken_over_count_for_a_lost_run(main: Main) -> None:
    main.let_one_die("in the load")
    main.redis.hset(main.item.key(main.settings.namespace).record, "until", "1")
    main.let_one_die("in the load")
    assert main.record()["attempts"] == "1"
    outcome = main.end_what_it_held()
    assert outcome is not None
    assert (outcome.kind, outcome.why, outcome.attempts) == (OutcomeKind.FAILED, "worker_lost", 2)


def test_a_run_held_by_another_process_is_not_ended(main: Main) -> None:
    main.let_one_die("in the load")
    main.by = f"w@{socket.gethostname()}:1"
    assert main.end_what_it_held() is None
    assert main.record()["state"] == "running"


@pytest.mark.parametrize("attempt", [1, MAX_ATTEMPTS])
def test_a_run_taken_over_by_another_is_reported_as_rejected_only(main: Main, attempt: int) -> None:
    main.let_one_die("in the load")
    run = main.runtime.run_held_by(main.item, main.by)
    assert run is not None
    main.redis.hset(main.item.key(main.settings.namespace).record, "nonce", "another's")
    run = replace(run, item=msgspec.structs.replace(run.item, attempt=attempt))
    outcome = main.runtime.refresher.finish_lost_run(run, LOST)
    assert (outcome.kind, outcome.again) == (OutcomeKind.REJECTED, None)
    assert main.events.all == [("rejected", "superseded")]
    assert main.runtime.dead_letters.newest() == []


class LostRequest(RefreshRequest):
    """A message whose process is gone, without the pool and the connection that it came by."""

    task: Any = None
    args: Any = None
    delivery_info: ClassVar[dict[str, str]] = {"routing_key": "refresh"}

    def __init__(self, main: Main, items: list[RefreshItem], send_task: Callable[..., None]) -> None:
        self.task = SimpleNamespace(
            app=SimpleNamespace(send_task=send_task),
            refresher_runtimes=SimpleNamespace(
                make=lambda: Runtime(main.settings, cast("Broker", None), events=main.events, queries=REGISTRY)
            ),
        )
        self.args = [messages.encode(items)]
        self._hostname, _, pid = main.by.rpartition(":")
        self.worker_pid = int(pid)


def test_each_run_of_a_lost_message_is_ended_though_the_broker_fails(
    main: Main, caplog: pytest.LogCaptureFixture
) -> None:
    main.let_one_die("in the load")
    other = msgspec.structs.replace(main.item, params='{"person_id":2}')
    acquired = LeaseStore(redis.Redis.from_url(main.settings.redis_url)).run(
        lease.acquire(
            other.key(main.settings.namespace), nonce=b"nonce--2", claim_number=0, ticket="", lease_seconds=30.0,
            limit_seconds=60.0, retention_seconds=60.0, by=main.by,
        )
    )  # fmt: skip
    assert acquired.status is AcquireStatus.ACQUIRED
    sent: list[Any] = []

    def fails_once(name: str, *, args: tuple[Any], **_: Any) -> None:
        sent.append(args[0])
        assert fork_gate.is_at_work
        if len(sent) == 1:
            raise OperationalError("no broker")

    LostRequest(main, [main.item, other], fails_once).end_runs_now(LOST)
    assert [item["params"] for each in sent for item in each["items"]] == [main.item.params, other.params]
    assert [item["attempt"] for each in sent for item in each["items"]] == [1, 1], "either may have ended the process"
    assert main.events.all == [("retried", "worker_lost", 1)] * 2
    assert "could not end or resend a lost refresh: OperationalError" in caplog.text


def test_the_pool_reports_both_of_two_processes_that_die_at_once(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "tests.support.two_deaths"]
    with GuardedProcess.start(argv, log_file=tmp_path / "log", cwd=Path(__file__).parents[2]) as process:
        assert process.wait(MAX_WAIT_SECONDS) == 0, process.tail_of_log()
    assert json.loads(process.tail_of_log(1)) == {"given again": 0, "ends": ["WorkerLostError"] * 2}


def test_a_flushed_pool_knows_the_task_that_a_process_has_received(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "tests.support.flushed_pool"]
    with GuardedProcess.start(argv, log_file=tmp_path / "log", cwd=Path(__file__).parents[2]) as process:
        assert process.wait(MAX_WAIT_SECONDS) == 0, process.tail_of_log()
    assert json.loads(process.tail_of_log(1)) == ["done"]
