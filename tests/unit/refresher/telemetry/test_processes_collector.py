"""The files in which the processes of a pool count, and their folder: what dead ones leave is added up, or removed."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import Metric, values
from prometheus_client.mmap_dict import MmapedDict

from refresher import WorkerSettings
from refresher.embedded import free_port
from refresher.telemetry import prometheus
from refresher.telemetry.prometheus import PREFIX, MetricsServer, ProcessesCollector
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

COUNTER = json.dumps(["loads", "loads_total", {"query": "q"}, "help"])
BUCKETS = {
    json.dumps(["seconds", "seconds_bucket", {"le": bound}, "help"]): value
    for bound, value in (("1.0", 2.0), ("+Inf", 1.0))
}


class Gauges:
    """Those of a worker that nobody scrapes."""

    gauges = SimpleNamespace(queries=())

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> list[Metric]:
        raise AssertionError


def dead_process() -> int:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def write(file: Path, values: dict[str, float]) -> None:
    counted = MmapedDict(str(file))  # type: ignore[no-untyped-call]
    for name, value in values.items():
        counted.write_value(name, value, 0.0)  # type: ignore[no-untyped-call]
    counted.close()  # type: ignore[no-untyped-call]


def test_a_process_that_is_forked_during_a_scrape_holds_up_no_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    children: list[int] = []

    def fork(_: ProcessesCollector) -> None:
        if not (child := os.fork()):
            while True:
                signal.pause()
        children.append(child)

    collector = ProcessesCollector(tmp_path)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(ProcessesCollector, "_add_up_dead_processes", fork)
            assert collector.collect() == []
        with (tmp_path / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def test_what_dead_processes_have_counted_is_kept_in_one_file_of_each_kind(tmp_path: Path) -> None:
    collector = ProcessesCollector(tmp_path)
    write(tmp_path / f"counter_{os.getpid()}.db", {COUNTER: 1.0})
    for round_ in range(1, 3):
        for pid in (dead_process(), dead_process()):
            write(tmp_path / f"counter_{pid}.db", {COUNTER: 10.0})
            write(tmp_path / f"histogram_{pid}.db", BUCKETS)
            write(tmp_path / f"gauge_liveall_{pid}.db", {COUNTER: 1.0})
        (tmp_path / f"summary_{dead_process()}.db").touch()  # killed before it had written anything
        for _ in range(2):
            samples = {
                (sample.name, sample.labels.get("le")): sample.value
                for metric in collector.collect()
                for sample in metric.samples
            }
            assert samples == {
                ("loads_total", None): 1.0 + 20.0 * round_,
                ("seconds_bucket", "1.0"): 4.0 * round_,
                ("seconds_bucket", "+Inf"): 6.0 * round_,
                ("seconds_count", None): 6.0 * round_,
            }
    assert {file.name for file in tmp_path.iterdir()} == {
        "lock", f"counter_{os.getpid()}.db", "counter_dead.db", "histogram_dead.db", "summary_dead.db",
    }  # fmt: skip


def test_a_worker_that_nobody_scrapes_adds_up_dead_processes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(prometheus.FOLDER, str(tmp_path))
    monkeypatch.setattr(values, "ValueClass", values.ValueClass)  # the server's start replaces it
    monkeypatch.setattr(prometheus, "TIDY_SECONDS", 0.01)
    file = tmp_path / f"counter_{dead_process()}.db"
    write(file, {COUNTER: 1.0})
    server = MetricsServer(WorkerSettings(metrics_port=free_port()), Gauges())  # type: ignore[arg-type]
    server.start()
    try:
        eventually(lambda: not file.exists(), "it has been added up")
        assert (tmp_path / "counter_dead.db").exists()
    finally:
        server.close()
    eventually(lambda: "refresher-metrics" not in [thread.name for thread in threading.enumerate()], "its thread ends")


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
