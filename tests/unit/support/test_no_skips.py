from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
            sys.executable, "-m", "pytest", "-p", "tests.support.no_skips", "-p", "no:cacheprovider", "-rf",
            "-c", "/dev/null", "--rootdir", str(folder), str(folder), *args,
        ],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_what_is_skipped_or_expected_to_fail_fails_with_its_reason(tmp_path: Path) -> None:
    for number, source in enumerate(NOT_RUN):
        (tmp_path / f"test_sample_{number}.py").write_text(HEAD + source)
    code, output = run_pytest(tmp_path, "--continue-on-collection-errors")
    failed = {number for number in range(len(NOT_RUN)) if f"test_sample_{number}.py" in output.partition("= short")[2]}
    assert code != 0, output
    assert len(failed) == len(NOT_RUN), output
    assert output.count("that is a failure: why not") >= len(NOT_RUN), output
    assert "5 passed, 1 error" in output.splitlines()[-1], output
    assert "skipped" not in output.splitlines()[-1]


def test_a_deselected_test_fails_the_run(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(HEAD + "def test_it(): pass")
    code, output = run_pytest(tmp_path, "-k", "runs")
    assert code != 0, output
    assert "test_it" in output
