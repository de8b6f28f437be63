"""A worker's process and its OpenTelemetry: off, on, without an SDK, over a fork, and at its end."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

import pytest
from celery import Celery, signals
from celery.concurrency.prefork import TaskPool as Prefork
from celery.concurrency.solo import TaskPool as Solo
from opentelemetry import trace

from refresher.flow.events import NO_SPANS
from refresher.queries import Registry
from refresher.settings import WorkerSettings
from refresher.telemetry import setup
from refresher.telemetry.metrics import WorkerGauges
from refresher.telemetry.setup import Telemetry
from tests.support.forks import run_forked
from tests.support.waiting import MAX_WAIT_SECONDS

Connect: TypeAlias = Callable[[Telemetry, Celery], None]


@pytest.fixture
def set_ups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """In which process an SDK would have been set up, each time."""
    seen: list[int] = []
    monkeypatch.setattr(setup, "set_up_sdk", lambda: seen.append(os.getpid()))
    return seen


def telemetry(*, otel: bool = True) -> Telemetry:
    return Telemetry(WorkerSettings(otel=otel), lambda: WorkerGauges(lambda: 0, list, dict, lambda: 0, Registry()))


@pytest.fixture
def connected() -> Iterator[Connect]:
    """Connects one to its app, until the test is over."""
    made: list[Telemetry] = []

    def connect(one: Telemetry, app: Celery) -> None:
        one.connect(app)
        made.append(one)

    yield connect
    for receiver in (receiver for one in made for receiver in getattr(one, "_receivers", ())):
        for signal in (signals.worker_ready, signals.worker_process_init, signals.worker_process_shutdown):
            signal.disconnect(receiver)


class Consumer:
    """What worker_ready is sent by."""

    def __init__(self, app: Celery, pool: type) -> None:
        self.app, self.pool = app, pool.__new__(pool)


def spans_of(made: Telemetry) -> object:
    return NO_SPANS if made.events is None else made.events.spans


def test_without_the_setting_nothing_begins_with_a_worker(set_ups: list[int], connected: Connect) -> None:
    made = telemetry(otel=False)
    connected(made, Celery(set_as_current=False))
    signals.worker_process_init.send(sender=None)
    assert (set_ups, made.events) == ([], None)


@pytest.mark.parametrize(("pool", "begins"), [(Solo, True), (Prefork, False)], ids=["solo", "prefork"])
def test_the_main_process_begins_where_it_refreshes_itself(
    set_ups: list[int], connected: Connect, pool: type, begins: bool
) -> None:
    app, other = Celery(set_as_current=False), Celery(set_as_current=False)
    made = telemetry()
    connected(made, app)
    signals.worker_ready.send(sender=Consumer(other, pool))
    assert set_ups == []
    signals.worker_ready.send(sender=Consumer(app, pool))
    assert set_ups == [os.getpid()] * begins
    assert (spans_of(made) is not NO_SPANS) == begins


def test_a_process_of_a_pool_begins_once(set_ups: list[int], connected: Connect) -> None:
    made = telemetry()
    connected(made, Celery(set_as_current=False))
    for _ in range(2):
        signals.worker_process_init.send(sender=None)
    assert set_ups == [os.getpid()]
    assert spans_of(made) is not NO_SPANS


def test_a_forked_child_begins_anew(set_ups: list[int]) -> None:
    made = telemetry()
    made.start()

    def begin_anew() -> None:
        assert spans_of(made) is NO_SPANS
        made.close()  # of its parent's nothing is sent
        made.start()
        assert spans_of(made) is not NO_SPANS
        assert set_ups[-1] == os.getpid()

    run_forked(begin_anew)


def test_without_its_packages_the_worker_says_what_to_install_and_refreshes_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.instrumentation.auto_instrumentation", None)
    made = telemetry()
    with caplog.at_level(logging.ERROR):
        made.start()
    assert "pip install 'refresher[otel]' opentelemetry-distro" in caplog.text
    assert made.events is None
    made.close()


def test_an_sdk_that_is_there_already_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.instrumentation.auto_instrumentation", None)
    monkeypatch.setattr(trace, "get_tracer_provider", trace.NoOpTracerProvider)
    made = telemetry()
    made.start()
    assert spans_of(made) is not NO_SPANS


def test_what_is_left_is_sent_at_the_end_and_a_hanging_collector_delays_no_exit(
    monkeypatch: pytest.MonkeyPatch, set_ups: list[int]
) -> None:
    flushing, release = threading.Event(), threading.Event()

    def flush(timeout_millis: int) -> None:
        flushing.set()
        release.wait(MAX_WAIT_SECONDS)

    provider = cast("Any", SimpleNamespace(force_flush=flush, get_tracer=lambda *_, **__: trace.NoOpTracer()))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setattr(setup, "FLUSH_SECONDS", 0.1)
    made = telemetry()
    made.start()
    made.close()
    assert flushing.wait(MAX_WAIT_SECONDS)
    assert not release.is_set()
    release.set()
