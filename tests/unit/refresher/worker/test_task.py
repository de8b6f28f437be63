"""The refresh task, on a Celery app that sends nothing: the outcome of each item of a message, and what is sent."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from celery import Celery
from celery.exceptions import Retry

from api_client.config.broker import refresh_queue
from api_client.errors import CacheUnavailable
from api_client.protocol import messages
from api_client.protocol.messages import RefreshItem
from refresher.flow.outcome import Outcome, OutcomeKind
from refresher.flow.ports import NO_SPANS
from refresher.queries import Registry, query
from refresher.settings import WorkerSettings
from refresher.worker.runtime import PerProcess
from refresher.worker.tasks import CACHE_RETRY_SECONDS, MAX_CACHE_RETRIES, RefreshAbandoned, add_task

A, B, C = (RefreshItem(query=name, params='{"n":1}') for name in "abc")
AGAIN_A = msgspec.structs.replace(A, ticket="ticket", attempt=2)


class Task:
    """The task with scripted outcomes of its items, and a diary of what was done and sent, in order."""

    def __init__(self, app: Celery) -> None:
        self.diary: list[tuple[Any, ...]] = []
        self.ends: dict[str, Any] = {
            "a": Outcome(OutcomeKind.RETRY, "a", why="network", again=AGAIN_A, pause_seconds=4)
        }
        self.publish_error: Exception | None = None
        self.names: list[str | None] = []
        app.send_task = self._send  # type: ignore[method-assign, unused-ignore]
        slots = SimpleNamespace(hold=lambda _: nullcontext([]))
        graph = SimpleNamespace(hangs=False)
        self.queries = Registry()
        runtime = SimpleNamespace(
            settings=WorkerSettings(), refresher=self, spans=NO_SPANS, graph=graph, slots=slots, queries=self.queries
        )
        add_task(app, cast("PerProcess", SimpleNamespace(get=lambda: runtime)), {"shared": False})
        self.task = app.tasks[messages.TASK_NAME]

    def run(self, *items: RefreshItem, retries: int = 0) -> str:
        queue = refresh_queue("cache")
        self.task.push_request(
            id="id", retries=retries, called_directly=False, hostname="celery@node",
            delivery_info={"exchange": queue, "routing_key": queue},
        )  # fmt: skip
        try:
            return str(self.task.run(messages.encode(items)))
        finally:
            self.task.pop_request()

    def refresh_together(self, items: Sequence[RefreshItem], by: str | None = None) -> list[Any]:
        self.names.append(by)
        self.diary.append(("refresh", "".join(item.query for item in items)))
        ends = [self.ends.get(item.query, Outcome(OutcomeKind.COMMITTED, item.query)) for item in items]
        for end in ends:
            if isinstance(end, Exception) and not isinstance(end, CacheUnavailable):
                raise end
        return ends

    def _send(self, name: str, args: Any, *_: Any, countdown: int | None = None, **options: Any) -> None:
        if self.publish_error:
            raise self.publish_error
        assert name == messages.TASK_NAME
        assert options["argsrepr"] == messages.shown_args(messages.decode(args[0]), "cache"), "params are not shown"
        self.diary.append(("send", messages.decode(args[0]), countdown))


@pytest.fixture
def task() -> Iterator[Task]:
    with Celery("test", set_as_current=False) as app:
        yield Task(app)


def test_a_run_is_identified_by_node_name_and_process_id(task: Task) -> None:
    task.run(B, C)
    assert task.names == [f"celery@node:{os.getpid()}"] * 2


def again(item: RefreshItem, cache_attempt: int) -> RefreshItem:
    return msgspec.structs.replace(item, cache_attempt=cache_attempt)


def test_a_batch_that_meets_a_lost_cache_loses_no_ticket(task: Task) -> None:
    task.ends["b"] = CacheUnavailable("gone")
    task.run(A, B, C)
    assert task.diary == [
        ("refresh", "a"), ("send", [AGAIN_A], 4),
        ("refresh", "b"), ("send", [again(B, 1)], CACHE_RETRY_SECONDS),
        ("refresh", "c"),
    ]  # fmt: skip


def test_one_item_of_a_batch_that_ends_in_an_error_is_logged_and_the_rest_goes_on(
    task: Task, caplog: pytest.LogCaptureFixture
) -> None:
    task.ends["b"] = RuntimeError("secret")
    said = task.run(A, again(B, MAX_CACHE_RETRIES), C)
    assert task.diary == [("refresh", "a"), ("send", [AGAIN_A], 4), ("refresh", "b"), ("refresh", "c")]
    assert "RuntimeError ended the refresh of 1 of several items: 'b'" in caplog.text
    assert said == "a ×1: 1 retry (network); b ×1: 1 failed (RuntimeError); c ×1: 1 committed"
    assert "secret" not in caplog.text + said


def test_a_retry_that_can_t_be_sent_does_not_end_its_batch(task: Task) -> None:
    task.publish_error = ConnectionError("no broker")
    task.run(A, B)
    assert task.diary == [("refresh", "a"), ("refresh", "b")]


def test_a_single_item_is_tried_again_as_the_task_s_own_retry(task: Task) -> None:
    with pytest.raises(Retry, match="network"):
        task.run(A)
    assert task.diary == [("refresh", "a"), ("send", [AGAIN_A], 4)]


def test_a_single_item_that_is_abandoned_fails_its_task_and_one_of_several_does_not(task: Task) -> None:
    task.ends["b"] = Outcome(OutcomeKind.FAILED, "b", "3f2a", why="syntax", attempts=2)
    with pytest.raises(RefreshAbandoned, match=r"^dead: failed \(syntax\) b 3f2a attempts=2$"):
        task.run(B)
    assert task.task.throws == (RefreshAbandoned,)  # which Celery logs in one line
    assert task.run(B, C) == "b ×1: 1 failed (syntax); c ×1: 1 committed"


def test_a_cache_that_stays_lost_fails_only_its_own_item_of_a_batch(task: Task) -> None:
    task.ends["b"] = CacheUnavailable("secret")
    assert task.run(again(B, MAX_CACHE_RETRIES), C) == "b ×1: 1 failed (cache_unavailable); c ×1: 1 committed"


@pytest.mark.parametrize("cache_attempt", range(MAX_CACHE_RETRIES))
def test_retries_for_a_lost_cache_are_counted_apart_from_the_load_s_attempts(task: Task, cache_attempt: int) -> None:
    task.ends["b"] = CacheUnavailable("gone")
    item = msgspec.structs.replace(B, attempt=4, ticket="ticket", cache_attempt=cache_attempt)
    with pytest.raises(Retry, match="cache_unavailable"):
        task.run(item, retries=MAX_CACHE_RETRIES + cache_attempt)
    assert task.diary[1:] == [("send", [again(item, cache_attempt + 1)], CACHE_RETRY_SECONDS)]


@pytest.mark.parametrize("error", [RuntimeError("odd"), CacheUnavailable("gone")])
def test_the_error_of_a_single_item_ends_its_task(task: Task, error: Exception) -> None:
    task.ends["b"] = error
    with pytest.raises(type(error)):
        task.run(again(B, MAX_CACHE_RETRIES))
    assert task.diary == [("refresh", "b")]


def test_items_that_do_not_fit_before_the_soft_limit_are_requeued_even_invalid_ones(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([0.0, 0.0, 1e6])
    monkeypatch.setattr("refresher.worker.tasks.monotonic", lambda: next(times))
    no_key = RefreshItem(query="a b", params="no JSON")
    task.run(A, no_key, C)
    assert task.diary == [("refresh", "a"), ("send", [AGAIN_A], 4), ("send", [no_key, C], None)]


MANY = [RefreshItem(query="many", params=f'{{"n":{n}}}') for n in range(5)]


def test_items_of_a_batched_query_are_loaded_together_as_many_as_its_loader_takes(task: Task) -> None:
    query("many", ttl=60, grace=60, batch=2, into=task.queries)(lambda tx, calls: calls)
    assert task.run(*MANY, B) == "many ×5: 5 committed; b ×1: 1 committed"
    assert task.diary == [("refresh", end) for end in ("manymany", "manymany", "many", "b")]


@pytest.mark.parametrize(("why", "messages_sent"), [("no_slot", 1), ("loader_error", 2)])
def test_untried_items_are_resent_together_and_failed_ones_singly(task: Task, why: str, messages_sent: int) -> None:
    query("many", ttl=60, grace=60, batch=5, into=task.queries)(lambda tx, calls: calls)
    task.ends["many"] = Outcome(OutcomeKind.RETRY, "many", why=why, again=MANY[0], pause_seconds=2)
    assert task.run(*MANY[:2]) == f"many ×2: 2 retry ({why})"
    sent = [entry for entry in task.diary if entry[0] == "send"]
    assert len(sent) == messages_sent
    assert sum(len(items) for _, items, _ in sent) == 2


def test_a_message_whose_items_all_failed_fails_its_task(task: Task) -> None:
    task.ends["many"] = Outcome(OutcomeKind.FAILED, "many", why="syntax")
    with pytest.raises(RefreshAbandoned, match=r"^dead: many ×2: 2 failed \(syntax\)$"):
        task.run(*MANY[:2])


def test_a_message_without_items_as_a_probe_sends_it_succeeds(task: Task) -> None:
    assert task.run() == ""
    assert task.diary == []


def test_an_unrecognised_message_is_dropped_by_the_task(task: Task) -> None:
    assert task.task.run({"v": 2, "items": []}).startswith("dropped: version 2")
    assert task.diary == []
