"""The core of a read, on an entry's bytes: the clock that decides, the triggers, and their order."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from api_client.config.settings import ReaderSettings
from api_client.errors import DecodeError
from api_client.local.tier import LocalTier
from api_client.observe.events import ReaderEvents
from api_client.protocol import payload
from api_client.protocol.clock import RedisClock, monotonic_seconds
from api_client.protocol.entry import encode
from api_client.protocol.keys import make_key
from api_client.protocol.messages import RefreshReason
from api_client.protocol.model import EntryState, RefreshState
from api_client.read.core import ReadCore
from api_client.read.evaluate import ANY
from api_client.read.sync import ReadPath
from api_client.trigger.backlog import Trigger
from api_client.trigger.suppression import TriggerSuppressor
from tests.support.lease_world import a_header
from tests.support.timing import Time

KEY = make_key("cache", "q", {"n": 1}, 1)
HOUR_US = 3_600_000_000
YEAR_US = 365 * 24 * HOUR_US


class Publisher:
    """Accepts every trigger."""

    def __init__(self) -> None:
        self.submitted: list[Trigger] = []

    def submit_all(self, triggers: Sequence[Trigger]) -> list[bool]:
        self.submitted += triggers
        return [True] * len(triggers)

    def refusal(self, _: str) -> None:
        return None


class Reader:
    """A core without Redis, whose clock starts at ``redis_us``."""

    def __init__(self, redis_us: int) -> None:
        self.redis_us, self.publisher = redis_us, Publisher()
        self.suppressor = TriggerSuppressor(monotonic=Time())
        self.tier = LocalTier(max_entries=10, max_bytes=10_000, max_age_seconds=60.0)
        self.tier.resume()
        clock = RedisClock()
        clock.sync(redis_us, asked_at=monotonic_seconds())
        self.link: Any = SimpleNamespace(routes=SimpleNamespace(clock=clock))
        tracking: Any = SimpleNamespace(start=lambda: None)
        publisher: Any = self.publisher
        self.core = ReadCore(
            ReaderSettings(), self.link, publisher, self.suppressor, ReaderEvents(), self.tier, tracking
        )

    def entry(self, *, left_us: int, token: int = 50) -> bytes:
        """Return an entry of a text whose soft expiry is in ``left_us``; negative: past."""
        soft_expiry_us = self.redis_us + left_us
        at_us = soft_expiry_us - 10 * HOUR_US
        header = a_header(
            token, soft_expiry_us=soft_expiry_us, read_started_us=at_us, fetched_at_us=at_us, ttl_seconds=36_000.0
        )
        return encode(header, KEY.digest, payload.encode("text"))

    def read(self, raw: bytes, type_: Any = str) -> Any:
        return self.core.serve(KEY, raw, ANY, type_, None)

    def reasons(self) -> list[RefreshReason]:
        return [trigger.reason for trigger in self.publisher.submitted]


@pytest.fixture
def reader() -> Reader:
    return Reader(time.time_ns() // 1_000)


def read_first(reader: Reader, raw: bytes) -> None:
    reader.read(raw, int)


def read_again(reader: Reader, raw: bytes) -> None:
    for _ in range(3):
        reader.read(raw)
    reader.suppressor.forget()
    reader.publisher.submitted.clear()
    reader.read(raw, int)


def read_into_the_tier(reader: Reader, raw: bytes) -> None:
    reader.core.serve(KEY, raw, ANY, int, reader.core.begin_fill(KEY))


@pytest.mark.parametrize("read", [read_first, read_again, read_into_the_tier])
def test_a_stale_value_that_does_not_fit_the_caller_s_type_still_triggers_a_refresh(reader: Reader, read: Any) -> None:
    with pytest.raises(DecodeError, match="does not fit int"):
        read(reader, reader.entry(left_us=-HOUR_US))
    assert reader.reasons() == [RefreshReason.STALE]


def test_reads_of_a_stale_entry_trigger_one_refresh_and_one_more_when_the_entry_changes(reader: Reader) -> None:
    first, second = (reader.entry(left_us=-HOUR_US, token=token) for token in (50, 51))
    states = [reader.read(raw).refresh for raw in (first, first, first, second, second)]
    triggered, suppressed = RefreshState.TRIGGERED, RefreshState.SUPPRESSED
    assert states == [triggered, suppressed, suppressed, triggered, suppressed]
    assert [trigger.seen_token for trigger in reader.publisher.submitted] == [50, 51]


@pytest.mark.parametrize("ahead_us", [-YEAR_US, YEAR_US])
def test_only_redis_clock_decides_staleness_however_far_this_machine_s_clock_is_off(ahead_us: int) -> None:
    reader = Reader(time.time_ns() // 1_000 + ahead_us)
    stale, fresh = (reader.entry(left_us=left_us) for left_us in (-HOUR_US, HOUR_US))
    for _ in range(3):  # from the second time on, the decoded value is cached
        assert [reader.read(raw).state for raw in (stale, fresh)] == [EntryState.STALE, EntryState.FRESH]
    assert reader.reasons() == [RefreshReason.STALE]


def test_a_timeout_of_a_signal_handler_ends_a_waiting_read_as_it_is(reader: Reader) -> None:
    def interrupted(*_: Any) -> bytes:
        raise TimeoutError("of a signal handler")

    runner: Any = SimpleNamespace(run=interrupted)
    link: Any = SimpleNamespace(read=lambda _: None, routes=reader.link.routes)
    with pytest.raises(TimeoutError, match="of a signal handler"):
        ReadPath(reader.core, link, runner).read(KEY, ANY, 1.0, Any)
