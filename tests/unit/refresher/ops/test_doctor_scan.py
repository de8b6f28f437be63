"""Doctor's checks share one scan of the keys, also where the user may not scan."""

from __future__ import annotations

import pytest

from api_client import ReaderSettings
from refresher.ops.doctor import deployment
from refresher.ops.doctor.findings import Level
from refresher.ops.doctor.registry import CHECKS, run_checks
from refresher.ops.scan import KeysSeen
from refresher.settings import WorkerSettings


def test_a_refused_scan_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    scans: list[str] = []

    def scan(_client: object, namespace: str) -> KeysSeen:
        scans.append(namespace)
        return KeysSeen(problem="this user may not SCAN")

    monkeypatch.setattr(deployment, "scan_keys", scan)
    checks = [check for check in CHECKS if check.name in {"entries", "refreshes", "tags"}]
    with deployment.Deployment(WorkerSettings(namespace="mine"), ReaderSettings()) as examined:
        found = list(run_checks(examined, checks))
    assert scans == ["mine"]
    assert [one.level for one in found] == [Level.WARNING] * 3
    assert all("may not SCAN" in one.message for one in found)
