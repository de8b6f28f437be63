"""The plugin of CI: what it refuses, a run that succeeds never shows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.waiting import MAX_WAIT_SECONDS

ROOT = Path(__file__).parents[3]
HEAD = "import pytest\ndef test_that_runs(): pass\n"
NOT_RUN = (
    "def test_it(): pytest.skip('why not')",
    "@pytest.mark.xfail(reason='why not')\ndef test_it(): assert False",
    "pytest.skip('why not', allow_module_level=True)",
)


def run_pytest(folder: Path, *args: str) -> str:
    """Return the output of a run, which must fail; without the summary, which repeats the reasons in CI."""
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-p", "tests.support.no_skips", "-p", "no:cacheprovider",
            "-rN", "-c", "/dev/null", "--rootdir", str(folder), str(folder), *args,
        ],
        cwd=ROOT, capture_output=True, text=True, timeout=MAX_WAIT_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode != 0, done.stdout
    return done.stdout + done.stderr


def test_a_test_that_is_skipped_or_expected_to_fail_fails_with_its_reason(tmp_path: Path) -> None:
    for number, source in enumerate(NOT_RUN):
        (tmp_path / f"test_sample_{number}.py").write_text(HEAD + source)
    output = run_pytest(tmp_path, "--continue-on-collection-errors")
    assert output.count("did not run, or was expected to fail") == output.count(": why not\n") == len(NOT_RUN), output
    assert "2 failed, 2 passed, 1 error" in output.splitlines()[-1], output


def test_a_deselected_test_fails_the_run(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(HEAD + "def test_it(): pass")
    assert "test_it" in run_pytest(tmp_path, "-k", "runs")
