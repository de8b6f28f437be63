from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
HEAD = "import pytest\ndef test_that_runs(): pass\n"


def run_pytest(folder: Path, source: str, *args: str) -> tuple[int, str]:
    (folder / "test_sample.py").write_text(HEAD + source)
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-p", "tests.support.no_skips", "-p", "no:cacheprovider",
            "-c", "/dev/null", "--rootdir", str(folder), str(folder), *args,
        ],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_what_runs_and_passes_passes(tmp_path: Path) -> None:
    code, output = run_pytest(tmp_path, "")
    assert code == 0, output
    assert "1 passed" in output


@pytest.mark.parametrize(
    "source",
    [
        "def test_it(): pytest.skip('why not')",
        "@pytest.mark.skip(reason='why not')\ndef test_it(): pass",
        "@pytest.mark.skipif(True, reason='why not')\ndef test_it(): pass",
        "@pytest.mark.xfail(reason='why not')\ndef test_it(): assert False",
        "def test_it(): pytest.xfail('why not')",
        "@pytest.fixture\ndef server(): pytest.skip('why not')\ndef test_it(server): pass",
        "pytest.skip('why not', allow_module_level=True)",
        "pytest.importorskip('no_such_module_at_all', reason='why not')",
    ],
)
def test_what_is_skipped_or_expected_to_fail_fails_with_its_reason(tmp_path: Path, source: str) -> None:
    code, output = run_pytest(tmp_path, source)
    assert code != 0, output
    assert "why not" in output
    assert "skipped" not in output.splitlines()[-1]


def test_a_deselected_test_fails_the_run(tmp_path: Path) -> None:
    code, output = run_pytest(tmp_path, "def test_it(): pass", "-k", "runs")
    assert code != 0, output
    assert "test_it" in output
