"""What a main process counts, on its way to a real collector by a process beside it: however either of them ends."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from refresher import otel_relay as subject
from refresher import otel_sdk
from refresher.otel_relay import RelayedEvents
from tests.support.otlp_collector import Collector, collecting
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector that this process's children know of."""
    with collecting() as collector:
        for name, value in (
            collector.env | {"PYTHONPATH": str(ROOT), "OTEL_METRIC_EXPORT_INTERVAL": "3600000"}
        ).items():
            monkeypatch.setenv(name, value)
        yield collector


@pytest.fixture
def relayed() -> Iterator[RelayedEvents]:
    events = RelayedEvents()
    yield events
    events.close()


@pytest.fixture
def in_its_place(monkeypatch: pytest.MonkeyPatch, relayed: RelayedEvents) -> Callable[[str], None]:
    """Has a process that runs some code take the part of the one beside."""
    start: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen

    def put(code: str) -> None:
        monkeypatch.setattr(subprocess, "Popen", lambda _, **options: start([sys.executable, "-c", code], **options))

    return put


def test_all_that_is_told_has_arrived_when_it_is_closed_and_is_one_instances(
    collector: Collector, relayed: RelayedEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otel_sdk, "FLUSH_SECONDS", 60.0)

    def tell() -> None:
        for _ in range(50):
            relayed.message_dropped(reason="body")

    threads = [threading.Thread(target=tell) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    relayed.retried("q", kind="worker_lost", attempt=1, pause_seconds=0.5)
    relayed.failed("q", kind="worker_lost", attempts=2)
    relayed.rejected("q", why="lost")
    relayed.close()
    relayed.message_dropped(reason="body")  # too late
    assert collector.total("refresher_messages_dropped_total", reason="body") == 200
    assert collector.total("xfetch_refresh_retried_total", query="q", kind="worker_lost") == 1
    assert collector.total("xfetch_refresh_failed_total", query="q", kind="worker_lost") == 1
    assert collector.total("xfetch_stale_write_rejected_total", query="q", why="lost") == 1
    assert len(collector.instances) == 1


def test_without_an_event_there_is_no_process(monkeypatch: pytest.MonkeyPatch, relayed: RelayedEvents) -> None:
    monkeypatch.setattr(subject, "_started", pytest.fail)
    relayed.close()


KILLED = """
import os, signal
from refresher.otel_relay import RelayedEvents

relayed = RelayedEvents()
relayed.message_dropped(reason="body")
if not os.fork():
    relayed.forget()
    signal.pause()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_main_process_that_was_killed_had_told_arrives_though_its_children_live(collector: Collector) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED], start_new_session=True) as main:
        try:
            assert main.wait(60) == -signal.SIGKILL
            eventually(lambda: collector.total("refresher_messages_dropped_total") == 1, 60, "it has arrived")
        finally:
            os.killpg(main.pid, signal.SIGKILL)


def test_nobody_waits_for_one_that_does_not_read_and_in_the_end_it_is_killed(
    in_its_place: Callable[[str], None],
    relayed: RelayedEvents,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(otel_sdk, "FLUSH_SECONDS", 0.1)
    in_its_place("import time; time.sleep(600)")
    with caplog.at_level(logging.WARNING):
        while not caplog.records:
            relayed.message_dropped(reason="body" * 100)
    assert "OpenTelemetry is not told of one event: message_dropped" in caplog.text
    process = relayed._process
    relayed.close()
    assert process is not None
    assert process.returncode == -signal.SIGKILL


def test_one_that_has_ended_is_told_of_once_and_not_started_again(
    in_its_place: Callable[[str], None], relayed: RelayedEvents, caplog: pytest.LogCaptureFixture
) -> None:
    in_its_place("")
    relayed.message_dropped(reason="body")
    process = relayed._process
    assert process is not None
    process.wait(60)
    for _ in range(3):
        relayed.message_dropped(reason="body")
    assert caplog.text.count("OpenTelemetry is told of no more events of the main process") == 1


def test_without_opentelemetry_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    monkeypatch.setitem(sys.modules, "opentelemetry.instrumentation.auto_instrumentation", None)
    try:
        with pytest.raises(SystemExit, match=r"pip install 'refresher\[otel\]'"):
            subject.main()
    finally:
        for one, handler in zip((signal.SIGINT, signal.SIGTERM), handlers, strict=True):
            signal.signal(one, handler)
