"""OpenTelemetry in a worker's process: off, on, without an SDK, over a fork, and at its end."""

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

from refresher.flow.ports import NO_SPANS, events_of
from refresher.queries import Registry
from refresher.settings import WorkerSettings
from refresher.telemetry import setup
from refresher.telemetry.metrics import WorkerGauges
from refresher.telemetry.setup import Telemetry
from refresher.worker.app import make_app
from refresher.worker.periodic import Periodic
from tests.support.processes import run_forked
from tests.support.waiting import MAX_WAIT_SECONDS

Make: TypeAlias = Callable[..., Celery]


@pytest.fixture
def set_ups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the ids of the processes in which an SDK would have been set up."""
    seen: list[int] = []
    monkeypatch.setattr(setup, "set_up_sdk", lambda: seen.append(os.getpid()))
    return seen


def telemetry() -> Telemetry:
    return Telemetry(
        WorkerSettings(otel=True), lambda: WorkerGauges(lambda: 0, list, dict, lambda: 0, lambda: None, Registry())
    )


@pytest.fixture
def make(set_ups: list[int], monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Return a function that makes a worker's app, whose chores do nothing. Signals reach no other app."""
    monkeypatch.setattr(Periodic, "start", lambda _: None)
    for signal in (signals.worker_ready, signals.worker_process_init, signals.worker_shutdown):
        monkeypatch.setattr(signal, "receivers", [])
    kept: list[Celery] = []

    def make_one(*, otel: bool = True) -> Celery:
        kept.append(make_app(WorkerSettings(otel=otel)))
        return kept[-1]

    yield make_one
    signals.worker_shutdown.send(sender=None)


class Consumer:
    """The sender of worker_ready."""

    def __init__(self, app: Celery, pool: type) -> None:
        self.app, self.pool = app, pool.__new__(pool)


def spans_of(made: Telemetry) -> object:
    return NO_SPANS if made.events is None else made.events.spans


def test_without_the_setting_a_worker_starts_no_telemetry(set_ups: list[int], make: Make) -> None:
    app = make(otel=False)
    signals.worker_process_init.send(sender=None)
    assert set_ups == []
    assert events_of(app).spans is NO_SPANS


@pytest.mark.parametrize(("pool", "begins"), [(Solo, True), (Prefork, False)], ids=["solo", "prefork"])
def test_the_main_process_starts_telemetry_only_if_it_refreshes_itself(
    set_ups: list[int], make: Make, pool: type, begins: bool
) -> None:
    app = make()
    signals.worker_ready.send(sender=Consumer(Celery(set_as_current=False), pool))
    assert set_ups == []
    signals.worker_ready.send(sender=Consumer(app, pool))
    assert set_ups == [os.getpid()] * begins
    assert (events_of(app).spans is not NO_SPANS) == begins


def test_a_pool_process_starts_telemetry_once(set_ups: list[int], make: Make) -> None:
    app = make()
    for _ in range(2):
        signals.worker_process_init.send(sender=None)
    assert set_ups == [os.getpid()]
    assert events_of(app).spans is not NO_SPANS


def test_a_forked_child_starts_telemetry_anew(set_ups: list[int]) -> None:
    made = telemetry()
    made.start()

    def begin_anew() -> None:
        assert spans_of(made) is NO_SPANS
        made.close()  # sends nothing of its parent's
        made.start()
        assert spans_of(made) is not NO_SPANS
        assert set_ups[-1] == os.getpid()

    run_forked(begin_anew)


def test_without_opentelemetry_a_worker_logs_what_to_install_and_runs_without_telemetry(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.instrumentation.auto_instrumentation", None)
    made = telemetry()
    with caplog.at_level(logging.ERROR):
        made.start()
    assert "pip install 'refresher[otel]' opentelemetry-distro" in caplog.text
    assert made.events is None
    made.close()


def test_an_sdk_that_is_already_set_up_is_used_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.instrumentation.auto_instrumentation", None)
    monkeypatch.setattr(trace, "get_tracer_provider", trace.NoOpTracerProvider)
    made = telemetry()
    made.start()
    assert spans_of(made) is not NO_SPANS


def test_remaining_telemetry_is_flushed_at_exit_and_a_hanging_collector_does_not_delay_it(
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
