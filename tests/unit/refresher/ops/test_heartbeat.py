"""The heartbeat of a worker's main loop, and the verdict on its liveness."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from refresher.ops.health import Health, Verdict
from refresher.ops.heartbeat import Heartbeat, Phase
from refresher.settings import WorkerSettings
from refresher.worker.celery_fixes.consumer import RefreshConsumer
from refresher.worker.lifecycle import HeartbeatStep
from tests.support.timing import Time

LIMIT_SECONDS = WorkerSettings().hard_limit_seconds


def consumer(heartbeat: Heartbeat, *, hub: Any = None, **attributes: Any) -> Any:
    return SimpleNamespace(app=SimpleNamespace(refresher_loop_heartbeat=heartbeat), hub=hub, **attributes)


def is_live(heartbeat: Heartbeat) -> bool:
    return Health(WorkerSettings(), heartbeat).live().is_good


def test_a_loop_is_stuck_after_a_silence_longer_than_a_message_may_take() -> None:
    clock = Time()
    heartbeat = Heartbeat(clock)
    HeartbeatStep(consumer(heartbeat, beats_while_connecting=True)).start(consumer(heartbeat, hub=object()))
    assert heartbeat.phase is Phase.CONSUMING
    clock.now += LIMIT_SECONDS
    assert is_live(heartbeat)
    clock.now += 1
    assert not is_live(heartbeat)
    heartbeat.beat()
    assert is_live(heartbeat)


@pytest.mark.parametrize(("beats", "live"), [(True, False), (False, True)])
def test_a_silent_loop_that_connects_is_stuck_only_if_it_beats_while_connecting(beats: bool, live: bool) -> None:
    clock = Time()
    heartbeat = Heartbeat(clock)
    HeartbeatStep(consumer(heartbeat, **({"beats_while_connecting": True} if beats else {})))
    clock.now += 10_000
    assert is_live(heartbeat) is live
    assert heartbeat.phase is Phase.CONNECTING


def test_each_attempt_to_connect_is_a_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Time()
    heartbeat = Heartbeat(clock)
    silences: list[float] = []

    def connect_at_the_third_attempt(errback: Callable[..., object], *_: object, **options: object) -> str:
        for _ in range(2):
            clock.now += 20
            errback(OSError(), 1.0)
            silences.append(heartbeat.silent_seconds)
        return "connected"

    def ensure_connected(self: object, conn: Any) -> Any:
        return conn.ensure_connection(lambda *_: None, None)

    monkeypatch.setattr("celery.worker.consumer.Consumer.ensure_connected", ensure_connected)
    waiting: Any = RefreshConsumer.__new__(RefreshConsumer)
    waiting.app = SimpleNamespace(refresher_loop_heartbeat=heartbeat)
    assert waiting.ensure_connected(SimpleNamespace(ensure_connection=connect_at_the_third_attempt)) == "connected"
    assert silences == [0.0, 0.0]


def test_a_worker_without_an_event_loop_is_never_stuck() -> None:
    clock = Time()
    heartbeat = Heartbeat(clock)
    HeartbeatStep(consumer(heartbeat)).start(consumer(heartbeat, hub=None))
    clock.now += 10_000
    assert is_live(heartbeat)


def test_a_stopping_worker_stays_live_and_stopping_however_long_it_takes() -> None:
    clock = Time()
    heartbeat = Heartbeat(clock)
    step = HeartbeatStep(consumer(heartbeat))
    heartbeat.enter(Phase.STOPPING, can_beat=False)
    step.stop(consumer(heartbeat))
    clock.now += 10_000
    assert (heartbeat.phase, is_live(heartbeat)) == (Phase.STOPPING, True)


def test_a_verdict_names_what_is_wrong() -> None:
    assert Verdict({"cache": None}).record() == {"ok": True, "checks": {"cache": "ok"}}
    assert Verdict({"cache": None, "graph": "gone"}).record() == {
        "ok": False,
        "checks": {"cache": "ok", "graph": "gone"},
    }
