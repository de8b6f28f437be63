"""The page of commands names each of them, and no other, with its exit codes; a shell can complete them, and --help
says what each option is.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from api_client import __version__
from refresher.cli.commands import app
from tests.support.waiting import MAX_WAIT_SECONDS

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "commands.md"
WITHOUT_JSON = {("demo",), ("dev",), ("feed", "install"), ("feed", "run"), ("feed", "uninstall")}  # they query nothing


def _commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(_commands(typer.main.get_command(app)))


def test_each_command_has_its_row() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    text = PAGE.read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `refresher (\w+)", text, re.MULTILINE)) == set(commands)


def test_each_row_says_when_the_command_exits_with_1() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `refresher ")]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert all(len(row) == 3 and all(row) for row in cells)


def test_a_shell_completes_commands_and_options() -> None:
    completing = {"_REFRESHER_COMPLETE": "complete_bash", "COMP_WORDS": "refresher status --wa", "COMP_CWORD": "2"}
    done = subprocess.run(
        [sys.executable, "-m", "refresher.cli"],
        env={**os.environ, **completing}, capture_output=True, text=True, timeout=MAX_WAIT_SECONDS, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["--watch"], done.stderr


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_each_option_has_a_help_text(path: tuple[str, ...]) -> None:
    params = [param for param in COMMANDS[path].params if not getattr(param, "hidden", False)]
    assert [param.name for param in params if not (param.help or "").strip().endswith((".", "]"))] == []


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_each_command_that_queries_something_has_a_json_option(path: tuple[str, ...]) -> None:
    options = {option for param in COMMANDS[path].params for option in param.opts}
    assert ("--json" in options) is (path not in WITHOUT_JSON)


@pytest.mark.parametrize("path", [(), ("dead",), ("dead", "list"), ("explain",)], ids=str)
def test_h_is_short_for_help(path: tuple[str, ...]) -> None:
    short, long = (CliRunner().invoke(app, [*path, option]) for option in ("-h", "--help"))
    assert (short.exit_code, short.output) == (0, long.output)


@pytest.mark.parametrize("group", [(), ("dead",)], ids=["refresher", "dead"])
def test_the_list_of_commands_is_not_cut(group: tuple[str, ...]) -> None:
    assert "..." not in CliRunner().invoke(app, [*group, "--help"]).output.partition("Commands:")[2]


def test_the_version_is_that_of_the_packages() -> None:
    assert CliRunner().invoke(app, ["--version"]).output == f"refresher {__version__}\n"
