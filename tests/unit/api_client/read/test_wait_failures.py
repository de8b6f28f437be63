"""Waits during which Redis does not answer: a failed step is repeated once, a second failure in a row ends the wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from api_client import ReaderSettings
from api_client.errors import CacheUnavailable, WaitTimeout
from api_client.protocol.entry import encode
from api_client.protocol.keys import make_key
from api_client.protocol.lease import Call, ClaimReply, ClaimStatus, RecordState
from api_client.read import wait as wait_module
from api_client.read.aio import AsyncWaitRunner
from api_client.read.evaluate import ANY
from api_client.read.sync import SyncWaitRunner
from api_client.read.wait import Claim, Read, Reply, Wait
from api_client.transport.pubsub import Wakes
from api_client.trigger.backlog import Trigger
from tests.support.lease_world import a_header
from tests.support.waiting import MAX_WAIT_SECONDS

KEY = make_key("test", "query", {"n": 1}, 1)
NOW_US = 1_800_000_000_000_000
ENTRY = encode(a_header(11), KEY.digest, b"value")
CLAIMED = ClaimReply(ClaimStatus.CLAIMED, RecordState.QUEUED, 60.0, "", 0, 10, 8, NOW_US)
REPLIES: dict[type, Reply] = {Claim: CLAIMED, Read: (None, NOW_US)}
STEPS = 3
"""A claim, a read that finds nothing, one that finds the entry."""


class Link:
    """A link to a Redis that fails the steps of these numbers, for both kinds of readers."""

    def __init__(self, failing: set[int]) -> None:
        self._failing, self._step_number = failing, -1
        self._found = [None, ENTRY]
        self.claims: list[Call[Any]] = []

    def read_all(self, keys: Sequence[object]) -> list[bytes | None]:
        return [self._read()]

    def run_each(self, calls: Sequence[Call[Any]], query: str | None) -> list[Any]:
        try:
            return [self._run(call) for call in calls]
        except CacheUnavailable as error:
            return [error] * len(calls)

    async def read(self, key: object) -> bytes | None:
        return self._read()

    async def run(self, call: Call[Any], query: str) -> Any:
        return self._run(call)

    def _read(self) -> bytes | None:
        self._step()
        return self._found.pop(0)

    def _run(self, call: Call[Any]) -> ClaimReply:
        self.claims.append(call)
        self._step()
        return CLAIMED

    def _step(self) -> None:
        self._step_number += 1
        if self._step_number in self._failing:
            raise CacheUnavailable("it did not answer in time", query="another")


class SyncLink(Link):
    def now_us(self) -> int:
        return NOW_US


class AsyncLink(Link):
    async def now_us(self) -> int:
        return NOW_US


class Published(list[Trigger]):
    def submit(self, trigger: Trigger) -> bool:
        self.append(trigger)
        return True

    def refusal(self, _query: str) -> None:
        return None


class Silent:
    """Never notifies."""

    def listen(self, _: Wakes) -> Silent:
        return self

    def close(self) -> None:
        pass


@pytest.fixture(params=["sync", "async"])
def wait(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Link, Published, bytes]]:
    monkeypatch.setattr(wait_module, "RECLAIM_SECONDS", MAX_WAIT_SECONDS)  # one claim, however long the test takes
    settings = ReaderSettings(wait_poll_ms=0.1)

    def waited(failing: set[int], timeout_seconds: float = MAX_WAIT_SECONDS) -> tuple[Link, Published, bytes]:
        published = Published()
        wait, silent = Wait(KEY, ANY, 0, timeout_seconds, settings, cast("Any", published)), cast("Any", Silent())
        if request.param == "sync":
            link: Link = SyncLink(failing)
            raw = SyncWaitRunner(cast("Any", link), silent).run(wait)
        else:
            link = AsyncLink(failing)
            raw = asyncio.run(AsyncWaitRunner(cast("Any", link), silent).run(wait))
        return link, published, raw

    return waited


@pytest.mark.parametrize("step", range(STEPS))
def test_an_unanswered_step_is_repeated_once(wait: Any, step: int) -> None:
    _, published, raw = wait({step})
    assert raw == ENTRY
    assert len(published) == 1


def test_each_step_may_be_unanswered_once(wait: Any) -> None:
    assert wait({0, 2, 4})[2] == ENTRY


def test_a_repeated_claim_has_the_same_id(wait: Any) -> None:
    # The claim may have been made and only its reply lost: one with another id would be refused.
    link, published, _ = wait({0})
    first, second = link.claims
    assert first == second
    assert published[0].claim_id == first.args[0]


@pytest.mark.parametrize("step", range(STEPS))
def test_two_unanswered_steps_in_a_row_end_the_wait(wait: Any, step: int) -> None:
    with pytest.raises(CacheUnavailable, match="did not answer in time"):
        wait({step, step + 1})


def test_without_time_left_no_step_is_repeated(wait: Any) -> None:
    with pytest.raises(CacheUnavailable):
        wait({0}, timeout_seconds=0.0)


def test_a_timeout_names_a_failed_publication_while_the_next_one_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    published, now = Published(), 1_000.0
    monkeypatch.setattr(wait_module, "monotonic_seconds", lambda: now)
    wait = Wait(KEY, ANY, 0, 60.0, ReaderSettings(), cast("Any", published))

    def until_published(count: int) -> None:
        nonlocal now
        while len(published) < count and wait.result is None:
            now = max(now, wait.pauses_until)
            wait.advance(REPLIES.get(type(wait.step)))

    until_published(1)
    failure = ConnectionError("no broker")
    published[0].done(failure)
    until_published(2)
    now = wait.ends_at
    until_published(3)
    assert isinstance(wait.result, WaitTimeout)
    assert wait.result.__cause__ is failure
