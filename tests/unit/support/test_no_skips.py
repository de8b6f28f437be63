from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.waiting import MAX_WAIT_SECONDS

ROOT = Path(__file__).parents[3]
HEAD = "import pytest\ndef test_that_runs(): pass\n"
NOT_RUN = (
    "def test_it(): pytest.skip('why not')",
    "@pytest.mark.skipif(True, reason='why not')\ndef test_it(): pass",
    "@pytest.mark.xfail(reason='why not')\ndef test_it(): assert False",
    "def test_it(): pytest.xfail('why not')",
    "@pytest.fixture\ndef server(): pytest.skip('why not')\ndef test_it(server): pass",
    "pytest.skip('why not', allow_module_level=True)",
)


def run_pytest(folder: Path, *args: str) -> tuple[int, str]:
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-p", "tests.support.no_skips", "-p", "no:cacheprovider",
            "-c", "/dev/null", "--rootdir", str(folder), str(folder), *args,
        ],
        cwd=ROOT, capture_output=True, text=True, timeout=MAX_WAIT_SECONDS, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_a_test_that_is_skipped_or_expected_to_fail_fails_with_its_reason(tmp_path: Path) -> None:
    for number, source in enumerate(NOT_RUN):
        (tmp_path / f"test_sample_{number}.py").write_text(HEAD + source)
    code, output = run_pytest(tmp_path, "--continue-on-collection-errors")
    failed = {f"test_sample_{number}.py" for number in range(len(NOT_RUN))}
    assert code != 0, output
    assert all(f"{name} did not run" in output or f"{name}::test_it did not run" in output for name in failed), output
    assert output.count("why not") >= len(NOT_RUN), output
    assert "3 failed, 5 passed, 3 errors" in output.splitlines()[-1], output


def test_a_deselected_test_fails_the_run(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(HEAD + "def test_it(): pass")
    code, output = run_pytest(tmp_path, "-k", "runs")
    assert code != 0, output
    assert "test_it" in output
