"""What `python -m benchmarks topology` says to a wrong call: one line, before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.commands import app
from benchmarks.errors import BenchError


def said(*args: str) -> str:
    """Run the command in this process; what is wrong is told as usage, or by an error whose message is shown."""
    done = CliRunner().invoke(app, ["topology", *args], env={"NO_COLOR": "1"})
    assert done.exit_code in (1, 2)
    assert done.exception is None or isinstance(done.exception, SystemExit | BenchError)
    return " ".join(f"{done.output} {done.exception}".split())


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--ttl", "0"), "allowed is more than 0"),
        (("--cell", "fast"), "'fast' is not a duration"),
        (("--neo4j-uri", "bolt://neo4j:secret@localhost"), "no password on the command line"),
        (("--quadrants", "0.9", "0.9", "0.1", "0.1"), "the quadrants' probabilities must sum to 1"),
        (("--quadrants", "1.5", "-0.5", "0", "0"), "each quadrant's probability must be in [0, 1)"),
        (("--scale", "4", "--edge-factor", "64"), "distinct edges don't come up at scale 4"),
    ],
    ids=["ttl", "cell", "password", "sum", "negative", "too dense"],
)
def test_a_wrong_call_is_one_line(args: tuple[str, ...], says: str, tmp_path: Path) -> None:
    text = said("--quick", "--out", str(tmp_path), *args)
    assert says in text
    assert "secret" not in text
