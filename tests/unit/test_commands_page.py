"""The page of commands names each of them, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import typer

from refresher.cli.commands import app

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"


def test_each_command_has_its_row() -> None:
    click_app = typer.main.get_command(app)
    rows = re.findall(r"^\| `refresher (\w+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(rows) == sorted(click_app.commands)  # type: ignore[attr-defined]
