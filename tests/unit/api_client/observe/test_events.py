"""Composed events of readers and workers: each reaches all, and none ever costs a read or a refresh."""

from __future__ import annotations

import inspect
import logging
import signal
from typing import Any

import pytest

from api_client import ReaderSettings
from api_client.observe.events import CompositeEvents, ReaderEvents
from api_client.observe.setup import build_events
from api_client.observe.tracing import NO_SPANS, ReaderSpans
from refresher.flow.events import CompositeWorkerEvents, WorkerEvents

PAIRS = [(ReaderEvents, CompositeEvents), (WorkerEvents, CompositeWorkerEvents)]
METHODS = [
    (base, composite, name) for base, composite in PAIRS for name in vars(base) if name[0] != "_" and name != "spans"
]


def recording(base: type, calls: list[Any]) -> Any:
    """Events of a class whose every method notes its call."""

    def noting(name: str) -> Any:
        return lambda _, *args, **fields: calls.append((name, args, fields))

    return type("Recording", (base,), {name: noting(name) for one, _, name in METHODS if one is base})()


def fields_of(method: Any) -> dict[str, str]:
    """A value for each parameter; the first is given by its place, the others by name."""
    return {name: f"a {name}" for name in inspect.signature(method).parameters if name != "self"}


@pytest.mark.parametrize(("base", "composite", "name"), METHODS, ids=[name for *_, name in METHODS])
def test_each_event_reaches_all_with_all_that_it_says(base: type, composite: type, name: str) -> None:
    calls: list[Any] = []
    fields = fields_of(getattr(base, name))
    positional = [fields.pop("query")] if "query" in fields else []
    several = composite(recording(base, calls), recording(base, calls))
    getattr(several, name)(*positional, **fields)
    assert calls == [(name, tuple(positional), fields)] * 2
    assert inspect.signature(getattr(composite, name)) == inspect.signature(getattr(base, name))


@pytest.mark.parametrize(("base", "composite", "name"), METHODS, ids=[name for *_, name in METHODS])
def test_one_that_raises_is_logged_once_and_ignored_and_the_others_are_called(
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
        f"event handler {name} raised; its further errors are ignored"
    ]
    assert len(calls) == 3


@pytest.mark.parametrize("name", ["hit", "miss"])
def test_an_exception_of_a_signal_handler_ends_the_call_all_the_same(name: str) -> None:
    def time_out(*_: Any) -> None:
        raise TimeoutError

    interrupted = type("Interrupted", (ReaderEvents,), {name: lambda *_, **__: signal.raise_signal(signal.SIGUSR1)})()
    before = signal.signal(signal.SIGUSR1, time_out)
    try:
        with pytest.raises(TimeoutError):
            getattr(CompositeEvents(interrupted), name)(**fields_of(getattr(ReaderEvents, name)))
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_spans_are_those_of_the_first_that_records_any() -> None:
    class Traced(ReaderEvents):
        spans = ReaderSpans()

    first = Traced()
    assert CompositeEvents(ReaderEvents(), first, Traced()).spans is first.spans
    assert CompositeEvents(ReaderEvents()).spans is NO_SPANS


@pytest.mark.parametrize("own", [None, ReaderEvents()], ids=["none", "the silent default"])
def test_a_client_without_events_has_the_silent_default_which_costs_a_read_nothing(own: ReaderEvents | None) -> None:
    assert type(build_events(own, ReaderSettings())) is ReaderEvents  # readers report hits to no silent default
