"""A load's view of the pool process that it runs in."""

from __future__ import annotations

import pytest

from refresher.graph import thread_limits
from refresher.graph.thread_limits import pool_has_limits, process_is_ending


@pytest.fixture
def in_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_limits, "pool_has_limits", lambda: True)


def test_a_process_outside_a_prefork_pool_has_no_pool_limits_and_is_never_ending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(thread_limits, "terminate_handler_fired", lambda: True)
    assert not pool_has_limits()
    assert not process_is_ending()


@pytest.mark.usefixtures("in_pool")
@pytest.mark.parametrize("has_fired", [True, False])
def test_a_pool_process_is_ending_once_its_terminate_handler_has_fired(
    monkeypatch: pytest.MonkeyPatch, *, has_fired: bool
) -> None:
    monkeypatch.setattr(thread_limits, "terminate_handler_fired", lambda: has_fired)
    assert process_is_ending() is has_fired
