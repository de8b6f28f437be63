"""The first process of a container (PID 1), which ignores SIGTERM by default: it ends while it starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.acceptance.conftest import ROOT
from tests.support.timing import Measured
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

CAN_UNSHARE = os.geteuid() == 0 and not subprocess.run(["unshare", "--pid", "--fork", "true"], check=False).returncode  # noqa: S607
pytestmark = pytest.mark.skipif(not CAN_UNSHARE, reason="only root has namespaces of processes here")

ENDS_WITHIN_SECONDS = 20  # far less than the grace of an engine or Kubernetes, 30 s with most
NAMESPACE = ("unshare", "--pid", "--mount-proc", "--fork", "--kill-child")
SLOW_START = """
import pathlib, time

pathlib.Path("begun").touch()
time.sleep(3_600)
"""
SERVING = """
import pathlib, signal
import refresher, refresher.worker.app

assert not hasattr(refresher, "other")
refresher.app
print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
"""
STARTS = {
    "worker": ["-m", "celery", "-A", "refresher", "worker"],
    "flower": ["-m", "celery", "-A", "refresher", "flower"],
    "dev": ["-m", "refresher.cli", "dev"],
    "queries": ["-m", "refresher.cli", "queries"],
}


def first_process(folder: Path, arguments: list[str], **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*NAMESPACE, sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{folder}", **environ},
        cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("command", STARTS)
def test_a_signal_ends_a_command_while_it_starts(tmp_path: Path, command: str, number: signal.Signals) -> None:
    (tmp_path / "slow_queries.py").write_text(SLOW_START)
    with first_process(tmp_path, STARTS[command], REFRESHER_QUERIES="slow_queries") as process:
        try:
            eventually((tmp_path / "begun").exists, "it imports its queries")
            [first] = psutil.Process(process.pid).children()
            first.send_signal(number)
            with Measured() as took:
                code = process.wait(MAX_WAIT_SECONDS)
            took.at_most(ENDS_WITHIN_SECONDS)
        finally:
            process.kill()
        assert process.stdout is not None
        printed = process.stdout.read()
    # Celery ends with 1 after Ctrl-C, and dev with 0.
    assert code in ({143} if number == signal.SIGTERM else {0, 1, 130}), printed


def test_an_applications_own_process_is_left_as_it_is(tmp_path: Path) -> None:
    with first_process(tmp_path, ["-c", SERVING]) as process:
        assert process.communicate(timeout=MAX_WAIT_SECONDS)[0] == "True\n"
