"""Composed events of readers and workers: each reaches all handlers, and none ever fails a read or a refresh."""

from __future__ import annotations

import inspect
import logging
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from api_client import ReaderSettings
from api_client.observe.events import CompositeEvents, ReaderEvents
from api_client.observe.setup import build_events
from api_client.observe.tracing import NO_SPANS, ReaderSpans
from refresher.flow.ports import CompositeWorkerEvents, WorkerEvents

PAIRS = [(ReaderEvents, CompositeEvents), (WorkerEvents, CompositeWorkerEvents)]
METHODS = [
    (base, composite, name) for base, composite in PAIRS for name in vars(base) if name[0] != "_" and name != "spans"
]


def recording(base: type, calls: list[Any]) -> Any:
    """Return events of a class whose every method records its call."""

    def record(name: str) -> Any:
        return lambda _, *args, **fields: calls.append((name, args, fields))

    return type("Recording", (base,), {name: record(name) for one, _, name in METHODS if one is base})()


def fields_of(method: Any) -> dict[str, str]:
    """Return a value for each parameter."""
    return {name: f"a {name}" for name in inspect.signature(method).parameters if name != "self"}


@pytest.mark.parametrize(("base", "composite", "name"), METHODS, ids=[name for *_, name in METHODS])
def test_each_event_reaches_all_handlers_with_all_its_fields(base: type, composite: type, name: str) -> None:
    calls: list[Any] = []
    fields = fields_of(getattr(base, name))
    positional = [fields.pop("query")] if "query" in fields else []
    several = composite(recording(base, calls), recording(base, calls))
    getattr(several, name)(*positional, **fields)
    assert calls == [(name, tuple(positional), fields)] * 2
    assert inspect.signature(getattr(composite, name)) == inspect.signature(getattr(base, name))


@pytest.mark.parametrize(("base", "composite", "name"), METHODS, ids=[name for *_, name in METHODS])
def test_a_handler_that_raises_is_logged_once_and_ignored_and_the_others_are_called(
    caplog: pytest.LogCaptureFixture, base: type, composite: type, name: str
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise ValueError("broken")

    calls: list[Any] = []
    broken = type("Broken", (base,), {name: fails})()
    several = composite(broken, recording(base, calls))
    fields = fields_of(getattr(base, name))
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            getattr(several, name)(**fields)
    assert [record.message for record in caplog.records] == [
        f"event handler {name} raised; its further errors are not logged"
    ]
    assert len(calls) == 3


def time_out(*_: Any) -> None:
    raise TimeoutError


class TimeOut:
    def __call__(self, *_: Any) -> None:
        raise TimeoutError


@pytest.mark.parametrize("handler", [time_out, TimeOut(), partial(time_out, 1)], ids=["function", "object", "partial"])
@pytest.mark.parametrize("name", ["hit", "miss"])
def test_an_exception_of_a_signal_handler_is_not_suppressed(name: str, handler: Callable[..., None]) -> None:
    interrupted = type("Interrupted", (ReaderEvents,), {name: lambda *_, **__: signal.raise_signal(signal.SIGUSR1)})()
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(TimeoutError):
            getattr(CompositeEvents(interrupted), name)(**fields_of(getattr(ReaderEvents, name)))
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_spans_are_those_of_the_first_handler_that_records_spans() -> None:
    class Traced(ReaderEvents):
        spans = ReaderSpans()

    first = Traced()
    assert CompositeEvents(ReaderEvents(), first, Traced()).spans is first.spans
    assert CompositeEvents(ReaderEvents()).spans is NO_SPANS


@pytest.mark.parametrize("own", [None, ReaderEvents()], ids=["none", "the no-op default"])
def test_a_client_without_events_gets_the_no_op_default(own: ReaderEvents | None) -> None:
    assert type(build_events(own, ReaderSettings())) is ReaderEvents  # readers report no hits to it
