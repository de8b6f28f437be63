"""Counting must never cost a read."""

from __future__ import annotations

import logging

import pytest

from api_client.observe.events import ReaderEvents, guarded
from refresher.flow.events import WorkerEvents


class Broken(ReaderEvents):
    def __init__(self) -> None:
        self.misses = 0

    def hit(self, query: str, *, age_seconds: float, ttl_remaining_seconds: float, triggered: bool) -> None:
        raise ValueError("broken")

    def miss(self, query: str) -> None:
        self.misses += 1


def test_an_event_that_raises_is_logged_once_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    events = guarded(Broken(), ReaderEvents)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            events.hit("q", age_seconds=1, ttl_remaining_seconds=1, triggered=False)
    assert [record.message for record in caplog.records] == ["the event hit raised; further errors of it are ignored"]


def test_the_others_reach_their_object() -> None:
    broken = Broken()
    guarded(broken, ReaderEvents).miss("q")
    assert broken.misses == 1


def test_one_who_counts_can_be_told_from_the_silent_default() -> None:
    events = guarded(Broken(), ReaderEvents)
    assert isinstance(events, ReaderEvents)
    assert type(events) is not ReaderEvents  # readers tell hits to no silent default


@pytest.mark.parametrize("base", [ReaderEvents, WorkerEvents])
def test_the_silent_default_is_left_as_it_is(base: type) -> None:
    events = base()
    assert guarded(events, base) is events
