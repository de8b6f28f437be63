"""The bound on the recovery after the demo's outage, and the wait of a refresh in a long queue on top."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from refresher.demo.outage import (
    LONG_QUEUE,
    MAX_RECOVERY_SECONDS,
    PAUSE_SECONDS,
    QUEUE_WAIT_SECONDS,
    RECOVERY_SECONDS,
    Outage,
    Stage,
)

READY_AT = 200.0
BOUND_SECONDS = RECOVERY_SECONDS + QUEUE_WAIT_SECONDS


class Scene:
    """An outage that leaves a key stale, and whose new worker is ready at `READY_AT`."""

    def __init__(self) -> None:
        self.waiting, self.broken, self.left = 0, list[str](), {7}
        state: Any = SimpleNamespace(
            went_stale={7}, still_stale=lambda: self.left, recovered={}, history=[], is_warm=lambda _: True,
            checker=SimpleNamespace(report=self.broken.append),
        )  # fmt: skip
        workers: Any = SimpleNamespace(kill=lambda: None, start=lambda: None, ready_at=lambda: READY_AT)
        readers: Any = SimpleNamespace(set_worker_is_gone=lambda *, gone: None)
        writer: Any = SimpleNamespace(soft_only=False)
        self.history = state.history
        self.outage = Outage(workers, readers, writer, state, waiting=lambda: self.waiting, kill_at=100.0)
        for now in (100.0, 100.0 + PAUSE_SECONDS, READY_AT):
            self.outage.step(now)
        assert self.outage.stage is Stage.RECOVERING

    def after(self, seconds: float) -> Stage:
        self.outage.step(READY_AT + seconds)
        return self.outage.stage


@pytest.fixture
def outage() -> Scene:
    return Scene()


def test_a_key_that_stays_stale_though_the_queue_is_short_is_a_broken_promise(outage: Scene) -> None:
    outage.waiting = LONG_QUEUE
    assert outage.after(BOUND_SECONDS - 0.1) is Stage.RECOVERING
    assert not outage.broken
    assert outage.after(BOUND_SECONDS) is Stage.OVER
    assert len(outage.broken) == 1


def test_the_recovery_time_begins_when_the_queue_is_short_again(outage: Scene) -> None:
    outage.waiting = LONG_QUEUE + 1
    assert outage.after(BOUND_SECONDS + 5) is Stage.RECOVERING
    outage.waiting = 0
    assert outage.after(2 * BOUND_SECONDS + 4.9) is Stage.RECOVERING
    assert not outage.broken
    assert outage.after(2 * BOUND_SECONDS + 5) is Stage.OVER
    assert len(outage.broken) == 1


def test_a_machine_that_is_too_slow_is_reported_and_not_a_broken_promise(outage: Scene) -> None:
    outage.waiting = 4_321
    assert outage.after(MAX_RECOVERY_SECONDS - 0.1) is Stage.RECOVERING
    assert outage.after(MAX_RECOVERY_SECONDS) is Stage.OVER
    assert not outage.broken
    assert "4321 refreshes queued" in outage.history[-1][1]


def test_recovery_is_over_when_all_keys_are_fresh_however_long_the_queue_is(outage: Scene) -> None:
    outage.waiting, outage.left = 4_321, set()
    assert outage.after(30) is Stage.OVER
    assert not outage.broken
