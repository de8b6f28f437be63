"""Doctor's finding on a clock that differs from Redis'."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from refresher.ops.doctor import cache
from refresher.ops.doctor.findings import Level

NOW = 1_800_000_000.0


class Redis:
    """A Redis whose clock is off."""

    def __init__(self, off_seconds: float) -> None:
        self._off_seconds = off_seconds

    def time(self) -> tuple[int, int]:
        return int(NOW + self._off_seconds), 0


@pytest.mark.parametrize(("off_seconds", "level"), [(0, Level.OK), (60, Level.WARNING), (-60, Level.WARNING)])
def test_doctor_warns_of_a_clock_that_differs_from_redis(
    monkeypatch: pytest.MonkeyPatch, off_seconds: float, level: Level
) -> None:
    monkeypatch.setattr(cache, "time", SimpleNamespace(time=lambda: NOW))
    finding = cache.clock(SimpleNamespace(node=Redis(off_seconds)))  # type: ignore[arg-type]
    assert finding.level is level
    assert bool(finding.remedy) is (level is Level.WARNING)
