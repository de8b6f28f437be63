"""The times of a message, as a worker parses them: the same as Celery, at a fraction of its cost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from celery.exceptions import InvalidTaskError
from celery.worker.request import Request

from api_client.protocol.messages import TASK_NAME
from refresher.worker.celery_fixes.lost_runs import MAX_PAUSE, RefreshRequest

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def app() -> Celery:
    made = Celery("times", set_as_current=False)

    def nothing(_: object) -> None:
        """Stand for the task."""

    made.task(name=TASK_NAME, shared=False)(nothing)
    return made


def read(kind: type[Any], app: Celery, **headers: object) -> Any:
    message = SimpleNamespace(
        headers={"id": "1", "task": TASK_NAME, **headers}, body=b"", content_type="application/json",
        content_encoding="utf-8", payload=[[{}], {}, {}], delivery_info={}, properties={},
    )  # fmt: skip
    return kind(message, app=app, hostname="here", task=app.tasks[TASK_NAME])


@pytest.mark.parametrize(
    "text",
    ["2026-11-22T12:00:00+00:00", "2026-11-22T12:00:00Z", "2026-11-22T14:00:00.000000+02:00", "2026-11-22T12:00:00"],
)
def test_a_time_of_a_message_is_parsed_as_by_celery(app: Celery, text: str) -> None:
    ours, theirs = (read(kind, app, expires=text, eta=text) for kind in (RefreshRequest, Request))
    assert ours.expires == theirs.expires == NOON
    assert ours.eta == theirs.eta == NOON


def test_a_message_past_its_expiry_is_expired_and_another_is_not(app: Celery) -> None:
    now = datetime.now(UTC)
    for minutes, is_over in ((-1, True), (1, None)):
        request = read(RefreshRequest, app, expires=(now + timedelta(minutes=minutes)).isoformat())
        assert request.maybe_expire() is is_over


def test_a_message_without_times_has_none(app: Celery) -> None:
    request = read(RefreshRequest, app, expires=None)
    assert (request.expires, request.eta) == (None, None)


@pytest.mark.parametrize("ahead", [timedelta(seconds=20), timedelta(hours=1), timedelta(hours=23)])
def test_a_pause_sent_by_a_clock_that_is_ahead_lasts_no_longer_than_any(app: Celery, ahead: timedelta) -> None:
    before = datetime.now(UTC)
    request = read(RefreshRequest, app, eta=(before + ahead).isoformat())
    assert before + MAX_PAUSE <= request.eta <= datetime.now(UTC) + MAX_PAUSE


def test_a_pause_of_seconds_is_kept(app: Celery) -> None:
    eta = datetime.now(UTC) + MAX_PAUSE / 2
    assert read(RefreshRequest, app, eta=eta.isoformat()).eta == eta


@pytest.mark.parametrize("what", ["soon", 12])
def test_an_invalid_time_of_a_message_is_refused_as_by_celery(app: Celery, what: object) -> None:
    with pytest.raises(InvalidTaskError):
        read(RefreshRequest, app, eta=what)
