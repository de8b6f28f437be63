"""The files that give another terminal the environment of ``refresher dev``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from refresher.dev.environment_files import COMMANDS, FOLDER, reserved_folder, write_environment
from refresher.dev.errors import DevError

ENVIRON = {"CACHE_REDIS_URL": "redis://:p@127.0.0.1:1/0", "NEO4J_PASSWORD": """it's "$HOME" `x` #1; y"""}
SHOW = "import json, os; print(json.dumps(dict(os.environ)))"


def test_a_shell_reads_the_environment_files_back_and_no_other_user_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with reserved_folder() as folder:
        write_environment(folder, {"CACHE_REDIS_URL": "of the run before"})
        write_environment(folder, ENVIRON)
        command = dict(COMMANDS)["sh, bash, zsh"]
        done = subprocess.run(
            ["/bin/sh", "-c", f"{command} && '{sys.executable}' -c '{SHOW}'"],
            env={}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert ENVIRON.items() <= json.loads(done.stdout).items()
        assert folder.stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert list(tmp_path.iterdir()) == []


def test_only_one_refresher_dev_can_run_in_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / FOLDER).mkdir()  # left behind by a machine that lost its power
    with reserved_folder() as folder:
        with pytest.raises(DevError, match="another `refresher dev` runs in"), reserved_folder():
            pass
        assert folder.is_dir()


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / FOLDER).write_text("a file of that name")
    with pytest.raises(DevError, match="can't be created"), reserved_folder():
        pass
