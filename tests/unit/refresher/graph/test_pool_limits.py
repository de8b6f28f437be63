"""What a load knows of the process of the pool that it runs in."""

from __future__ import annotations

import pytest

from refresher.graph import thread_limits
from refresher.graph.thread_limits import pool_has_limits, process_is_ending


@pytest.fixture
def in_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_limits, "pool_has_limits", lambda: True)


def test_this_process_is_of_no_prefork_pool_and_so_never_ended_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_limits, "terminate_handler_fired", lambda: True)
    assert not pool_has_limits()
    assert not process_is_ending()


@pytest.mark.usefixtures("in_pool")
@pytest.mark.parametrize("is_told", [True, False])
def test_a_process_of_a_pool_ends_once_a_signal_has_told_it_to(
    monkeypatch: pytest.MonkeyPatch, *, is_told: bool
) -> None:
    monkeypatch.setattr(thread_limits, "terminate_handler_fired", lambda: is_told)
    assert process_is_ending() is is_told
