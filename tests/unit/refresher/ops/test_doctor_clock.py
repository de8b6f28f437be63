"""Doctor's finding on a clock that differs from Redis'."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from refresher.ops.doctor import cache
from refresher.ops.doctor.findings import Level

NOW = 1_800_000_000.0


class Redis:
    """A Redis whose clock is off, and this machine's clock: it moves while Redis is asked."""

    def __init__(self, off_seconds: float, exchange_seconds: float) -> None:
        self._off_seconds, self._exchange_seconds = off_seconds, exchange_seconds
        self.now = NOW

    def time(self) -> tuple[int, int]:
        self.now += self._exchange_seconds
        return int(NOW + self._off_seconds), 0


@pytest.mark.parametrize(
    ("off_seconds", "exchange_seconds", "level"),
    [(0, 0, Level.OK), (60, 0, Level.WARNING), (-60, 0, Level.WARNING), (0, 60, Level.OK), (60, 60, Level.OK)],
)
def test_doctor_warns_of_a_clock_that_differs_from_redis_by_more_than_the_exchange_took(
    monkeypatch: pytest.MonkeyPatch, off_seconds: float, exchange_seconds: float, level: Level
) -> None:
    redis = Redis(off_seconds, exchange_seconds)
    monkeypatch.setattr(cache, "time", SimpleNamespace(time=lambda: redis.now))
    finding = cache.clock(SimpleNamespace(node=redis))  # type: ignore[arg-type]
    assert finding.level is level
    assert bool(finding.remedy) is (level is Level.WARNING)
