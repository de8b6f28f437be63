"""A command of `refresher`, run in the test's process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from typer.testing import CliRunner, Result

from refresher.cli.commands import app


class CommandLine:
    """One command and its environment; its lines are not broken."""

    def __init__(self, command: str, env: Mapping[str, str]) -> None:
        self.command, self.env = command, {**env, "COLUMNS": "200"}

    def run(self, *arguments: str, stdin: str = "", **changes: str) -> Result:
        return CliRunner().invoke(app, [self.command, *arguments], input=stdin, env={**self.env, **changes})

    def run_json(self, *arguments: str, exit_code: int = 0, **changes: str) -> Any:
        """Run it with ``--json``, and return what it reports."""
        done = self.run(*arguments, "--json", **changes)
        assert done.exit_code == exit_code, done.output
        return json.loads(done.stdout)
