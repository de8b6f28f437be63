"""A worker, a monitor and commands with a setting that is wrong: one line that names it, and exit code 1."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.conftest import ROOT
from tests.support.waiting import MAX_WAIT_SECONDS

CANARY = "c4nary-s3cret"
STARTS = {
    "worker": ["-m", "celery", "-A", "refresher", "worker"],
    "flower": ["-m", "celery", "-A", "refresher", "flower"],
    "installed": ["-m", "celery", "-A", "tests.support.host_app", "worker"],
    "status": ["-m", "refresher.cli", "status"],
    "doctor": ["-m", "refresher.cli", "doctor"],
}


def run(folder: Path, arguments: list[str], **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{folder}", **environ},
        cwd=folder, capture_output=True, text=True, timeout=MAX_WAIT_SECONDS, check=False,
    )  # fmt: skip


WRONG = {
    "CACHE_REDIS_URL": f"redis://:{CANARY}@h:notaport/0",
    "CACHE_BROKER_URL": f"redis://:{CANARY}@h:x/0",
    "CELERY_BROKER_URL": f"amqp://u:{CANARY}@h:x//",
    "NEO4J_URI": f"bolt://u:{CANARY}@h:99999",
}


@pytest.mark.parametrize(
    ("command", "variable"),
    [
        ("worker", "CACHE_REDIS_URL"), ("worker", "CACHE_BROKER_URL"), ("worker", "NEO4J_URI"),
        ("flower", "CELERY_BROKER_URL"), ("status", "CACHE_REDIS_URL"), ("doctor", "NEO4J_URI"),
    ],
)  # fmt: skip
def test_an_invalid_url_ends_each_command_with_one_error_line(tmp_path: Path, command: str, variable: str) -> None:
    done = run(tmp_path, STARTS[command], **{variable: WRONG[variable]})
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {variable}='")
    assert "is not valid: allowed is " in line
    assert CANARY not in done.stdout + done.stderr


@pytest.mark.parametrize("command", ["worker", "flower", "doctor"])
def test_a_folder_that_shadows_the_reader_package_is_named_in_the_error(tmp_path: Path, command: str) -> None:
    other = tmp_path / "api_client" / "__init__.py"
    other.parent.mkdir()
    other.write_text("")
    done = run(tmp_path, STARTS[command], PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert done.returncode != 0
    assert f"api_client is {other}, and not the package of that name" in done.stderr


@pytest.mark.parametrize("code", ["0", "'bye'"])
def test_a_query_module_that_exits_is_named_and_the_worker_ends_with_an_error(tmp_path: Path, code: str) -> None:
    (tmp_path / "exiting_queries.py").write_text(f"import sys\nsys.exit({code})\n")
    done = run(tmp_path, STARTS["worker"], REFRESHER_QUERIES="exiting_queries")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        "error: REFRESHER_QUERIES='exiting_queries' is not valid: importing it failed with SystemExit"
    )


def test_an_applications_celery_app_gets_a_configuration_error_as_an_exception(tmp_path: Path) -> None:
    done = run(
        tmp_path, STARTS["installed"], CACHE_BROKER_URL="redis://h", CACHE_REDIS_URL=f"redis://:{CANARY}@h:x/0",
    )  # fmt: skip
    assert done.returncode != 0
    assert "CACHE_REDIS_URL='redis://***@h:***' is not valid" in done.stderr
    assert CANARY not in done.stdout + done.stderr
