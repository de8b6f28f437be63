"""The folder in which a worker's processes count: removed by the next worker where its own was killed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import Metric, values

from refresher import WorkerSettings
from refresher.embedded import free_port
from refresher.telemetry import prometheus
from refresher.telemetry.prometheus import PREFIX, MetricsServer
from tests.support.waiting import MAX_WAIT_SECONDS

COUNTING = """
import sys, time
from refresher import WorkerSettings
from refresher.telemetry.prometheus import MetricsServer

class Gauges:
    class gauges:
        queries = ()

    describe = collect = lambda self: []

MetricsServer(WorkerSettings(metrics_port=int(sys.argv[1])), Gauges()).start()
print("counting", flush=True)
time.sleep(3_600)
"""


def counting(folder: Path) -> subprocess.Popen[str]:
    """Start a process that counts as a worker does; it has begun."""
    process = subprocess.Popen(
        [sys.executable, "-c", COUNTING, str(free_port())], env={"TMPDIR": str(folder)}, text=True, stdout=-1
    )
    assert process.stdout.readline() == "counting\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=MAX_WAIT_SECONDS)


def folders(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_next_worker_removes_the_folder_of_one_that_was_killed_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = {f"{PREFIX}of-somebody", f"{PREFIX}link", "given"}
    for name in (f"{PREFIX}of-somebody", "given"):
        (tmp_path / name).mkdir()
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "given")
    killed, live = counting(tmp_path), counting(tmp_path)
    try:
        assert len(both := folders(tmp_path) - others) == 2
        end(killed)
        monkeypatch.delenv(prometheus.FOLDER, raising=False)
        monkeypatch.setattr(values, "ValueClass", values.ValueClass)  # the server's start replaces it
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        next_ = MetricsServer(WorkerSettings(metrics_port=free_port()), Gauges())  # type: ignore[arg-type]
        next_.start()
        assert len((folders(tmp_path) - others) & both) == 1  # the live one's
        next_.close()
        assert len(folders(tmp_path) - others) == 1
        assert others <= folders(tmp_path)
    finally:
        end(killed)
        end(live)


class Gauges:
    gauges = SimpleNamespace(queries=())

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> list[Metric]:
        return []
