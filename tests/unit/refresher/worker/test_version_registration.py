"""A process registers a version before its first load, renews it, and goes on for a while where it can't."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from api_client import CacheUnavailable
from api_client.protocol.keys import versions_key
from api_client.protocol.lease import Call
from api_client.transport.scripts import Until, at_once
from refresher import WorkerSettings, query
from refresher.queries import Registry
from refresher.worker.version_registration import (
    HEARTBEAT_SECONDS,
    MARGIN_SECONDS,
    RETRY_SECONDS,
    VersionRegistration,
    registration_of,
)

SETTINGS = WorkerSettings(namespace="n")


class Records:
    """Records what is run; fails while ``is_down``."""

    def __init__(self) -> None:
        self.calls: list[Call[Any]] = []
        self.is_down = False
        self.untils: list[Until] = []

    def run(self, call: Call[Any]) -> Any:
        raise NotImplementedError

    def run_each(self, calls: Sequence[Call[Any]], *, until: Until = all) -> list[Any]:
        self.untils.append(until)
        if self.is_down:
            return [CacheUnavailable("down")] * len(calls)
        self.calls += calls
        return [1] * len(calls)


@pytest.fixture
def registry() -> Registry:
    made = Registry()
    for version in (1, 2):
        query("q", ttl="5m", grace="1h", version=version, into=made)(lambda tx: None)
    return made


@pytest.fixture
def records() -> Records:
    return Records()


@pytest.fixture
def now() -> list[float]:
    return [1_000.0]


@pytest.fixture
def registration(records: Records, now: list[float]) -> VersionRegistration:
    return VersionRegistration(records, SETTINGS, lambda: now[0])


def test_a_version_registration_outlives_every_entry_of_a_load_begun_within_the_margin(
    registry: Registry,
) -> None:
    first, _ = registry
    call = registration_of(first, SETTINGS)
    assert call.keys == (versions_key("n", "q"),)
    version, lives_ms = call.args
    assert version == 1
    least_seconds = 300 + 3_600 + SETTINGS.hard_limit_seconds + SETTINGS.record_retention_seconds + MARGIN_SECONDS
    assert int(lives_ms) >= least_seconds * 1_000


def test_a_version_is_registered_before_the_first_load_and_again_after_each_heartbeat(
    registration: VersionRegistration, registry: Registry, records: Records, now: list[float]
) -> None:
    for one in registry:
        registration.ensure(one)
        registration.ensure(one)
    assert [call.args[0] for call in records.calls] == [1, 2]
    now[0] += HEARTBEAT_SECONDS
    for one in registry:
        registration.ensure(one)
    assert [call.args[0] for call in records.calls] == [1, 2, 1, 2]


def test_a_version_that_was_never_registered_is_not_loaded(
    registration: VersionRegistration, registry: Registry, records: Records
) -> None:
    first, _ = registry
    records.is_down = True
    for _ in range(2):
        with pytest.raises(CacheUnavailable):
            registration.ensure(first)
    records.is_down = False
    registration.ensure(first)
    assert len(records.calls) == 1


def test_a_registered_version_is_loaded_without_redis_until_the_margin_ends(
    registration: VersionRegistration, registry: Registry, records: Records, now: list[float]
) -> None:
    first, _ = registry
    registration.ensure(first)
    records.is_down = True
    now[0] += MARGIN_SECONDS - 1
    registration.ensure(first)
    now[0] += 1
    with pytest.raises(CacheUnavailable):
        registration.ensure(first)
    assert records.untils == [all, at_once, all]


def test_without_redis_a_registered_version_is_tried_again_once_a_minute_and_without_patience(
    registration: VersionRegistration, registry: Registry, records: Records, now: list[float]
) -> None:
    first, _ = registry
    registration.ensure(first)
    records.is_down = True
    for pause_seconds in (HEARTBEAT_SECONDS, RETRY_SECONDS - 1, 1):
        now[0] += pause_seconds
        registration.ensure(first)
    assert records.untils == [all, at_once, at_once]
