"""``refresher health`` without a port."""

from __future__ import annotations

from typer.testing import CliRunner

from refresher.cli.commands import app


def test_health_without_a_port_names_the_missing_setting() -> None:
    done = CliRunner().invoke(app, ["health"], env={"CACHE_HEALTH_PORT": None})
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "error: CACHE_HEALTH_PORT is not set: set it to the worker's\n"
