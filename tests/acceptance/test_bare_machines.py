"""The README's commands on a machine with another Python, where nothing else is. CI runs them on Debian 12 and sid."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from tests.acceptance.conftest import ROOT
from tests.support.requirements import skip_or_fail
from tests.support.waiting import MAX_WAIT_SECONDS


@pytest.mark.long
@pytest.mark.timeout(20 * MAX_WAIT_SECONDS)
@pytest.mark.parametrize("command", [["demo"], ["test", "ARGS=-p tests.support.no_skips"]], ids="".join)
def test_the_readme_s_commands_work_on_python_3_13(command: list[str]) -> None:
    """That of Debian 13."""
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        skip_or_fail("a bare machine needs root and mmdebstrap")
    run = [ROOT / ".ci/bare-machine", "trixie", "make", *command]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-3_000:]
