"""The page of commands names each of them, and no other, with its exit codes; a shell can complete them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import typer

from refresher.cli.commands import app

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"


def test_each_command_has_its_row() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    text = PAGE.read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `refresher (\w+)", text, re.MULTILINE)) == set(commands)
    assert sorted(re.findall(r"^\| `refresher bench (\w+)", text, re.MULTILINE)) == sorted(commands["bench"].commands)


def test_each_row_says_when_the_command_exits_with_1() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `refresher ")]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert all(len(row) == 3 and all(row) for row in cells)


def test_a_shell_completes_commands_and_options() -> None:
    completing = {"_REFRESHER_COMPLETE": "complete_bash", "COMP_WORDS": "refresher status --wa", "COMP_CWORD": "2"}
    done = subprocess.run(
        [sys.executable, "-m", "refresher.cli"],
        env={**os.environ, **completing}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["--watch"], done.stderr
