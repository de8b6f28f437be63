"""Runs that a process hands back as it ends, with fakes for all dependencies of a refresh."""

from __future__ import annotations

from typing import Any

import pytest

from api_client.errors import CacheUnavailable
from api_client.protocol.messages import RefreshItem, RefreshReason
from refresher.flow import nesting
from refresher.queries import Loaded
from tests.support.fake_refresher import ITEM, Worker, failing, interrupt_first_acquire

TICKETED = RefreshItem(query="q", params='{"n":1}', claim_number=7, ticket="used up")


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt])
def test_a_worker_that_shuts_down_hands_its_run_back_and_ends(worker: Worker, end: type[BaseException]) -> None:
    worker.loads.append(end())
    with pytest.raises(end):
        worker.refresher.refresh(TICKETED)
    assert worker.steps() == ["acquire", "hold", "load", "hand_back", "publish"]
    assert worker.diary[-1] == ("publish", 7, RefreshReason.MANUAL, "")


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt])
def test_a_worker_that_shuts_down_while_it_acquires_hands_back_what_redis_has_granted(
    worker: Worker, end: type[BaseException]
) -> None:
    asked = interrupt_first_acquire(worker, end())
    with pytest.raises(end):
        worker.refresher.refresh(TICKETED)
    assert worker.steps() == ["acquire", "acquire", "hand_back", "publish"]
    assert asked[0].args[0] == asked[1].args[0] == worker.calls["hand_back"].args[1], "one nonce"


def test_a_worker_that_shuts_down_between_acquire_and_load_hands_its_run_back(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(_query: str) -> None:
        raise SystemExit

    monkeypatch.setattr(worker, "acquired", end)
    with pytest.raises(SystemExit):
        worker.refresher.refresh(ITEM)
    assert worker.steps() == ["acquire", "hand_back", "publish"]


def test_a_process_that_ends_alone_while_it_acquires_hands_nothing_back(worker: Worker) -> None:
    worker.shuts_down = False
    interrupt_first_acquire(worker, SystemExit())
    with pytest.raises(SystemExit):
        worker.refresher.refresh(ITEM)
    assert worker.steps() == ["acquire"]


def test_a_run_ended_by_the_hard_limit_is_not_handed_back(worker: Worker) -> None:
    worker.load_seconds = worker.settings.soft_limit_seconds
    worker.loads.append(SystemExit())
    with pytest.raises(SystemExit):
        worker.refresher.refresh(TICKETED)
    assert worker.steps() == ["acquire", "hold", "load"]


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt])
def test_a_run_handed_back_that_can_t_be_published_is_unclaimed_and_the_worker_ends(
    worker: Worker, end: type[BaseException]
) -> None:
    worker.loads.append(end())
    worker.publish_error = ConnectionError("no broker")
    with pytest.raises(end):
        worker.refresher.refresh(ITEM)
    assert worker.steps()[-3:] == ["hand_back", "publish", "unclaim"]
    assert worker.calls["unclaim"].args[0] == worker.calls["acquire"].args[0], "the run's nonce is the claim's id"


@pytest.mark.parametrize("step", ["hand_back", "unclaim"])
def test_a_worker_that_shuts_down_ends_even_without_redis(worker: Worker, step: str) -> None:
    worker.loads.append(SystemExit())
    worker.publish_error = ConnectionError("no broker")
    worker.replies[step] = CacheUnavailable("gone")
    with pytest.raises(SystemExit):
        worker.refresher.refresh(ITEM)


def test_a_run_whose_lease_is_lost_is_not_republished_at_shutdown(worker: Worker) -> None:
    worker.replies["hand_back"] = 0
    worker.loads.append(SystemExit())
    with pytest.raises(SystemExit):
        worker.refresher.refresh(ITEM)
    assert "publish" not in worker.steps()


def test_a_process_that_ends_hands_back_only_the_runs_under_way(worker: Worker) -> None:
    worker.refresher.refresh(ITEM)
    worker.refresher.hand_back_all()
    assert "hand_back" not in worker.steps()
    nonces: list[Any] = []

    def load(*_: Any) -> list[Loaded]:
        worker.refresher.hand_back_all()
        nonces.append(worker.calls["hand_back"].args[1])
        return [Loaded("value")]

    worker.load = load  # type: ignore[method-assign]
    worker.refresher.refresh(ITEM)
    assert nonces == [worker.calls["acquire"].args[0]]
    assert worker.steps()[-5:] == ["hand_back", "publish", "commit", "committed", "let go"]


@pytest.mark.parametrize("kind", ["timeout", "bookmark_timeout"])
def test_a_load_that_ran_out_of_the_time_around_it_is_handed_back(worker: Worker, kind: str) -> None:
    worker.loads.append(failing(kind))
    with nesting.within((), 0.0), pytest.raises(nesting.OutOfTime):
        worker.refresher.refresh(ITEM)
    assert worker.steps() == ["acquire", "hold", "load", "hand_back", "publish"]
