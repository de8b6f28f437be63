"""The types that mypy infers for calls of the reader, line by line: they are part of the public contract."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAMPLES = Path(__file__).parent
REPORTED = re.compile(
    r'^(?P<file>[^:]+):(?P<line>\d+): (?:note: Revealed type is "(?P<is>.*)"|error: .*\[(?P<error>[a-z-]+)\])$'
)
EXPECTED = re.compile(r"# (?P<what>is|error) (?P<text>.+)$")
# mypy spells types with their modules, and a TypedDict with its items.
MODULES = re.compile(r"\b(?:[a-z_]+\.)+(?=[A-Za-z_])")
TYPED_DICT = re.compile(r"TypedDict\((\w+), \{[^}]*\}\)")
# The same type, read from the cache of a run over another file.
ANY_PARAMS = "[*Any, **Any]"


def expected_of(sample: Path) -> dict[int, tuple[str, str]]:
    lines = enumerate(sample.read_text().splitlines(), start=1)
    found = ((number, EXPECTED.search(line)) for number, line in lines if not line.startswith("#"))
    return {number: (match["what"], match["text"]) for number, match in found if match}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mypy")


def mypy(cache: Path, *args: str) -> list[str]:
    """Return the lines of mypy, run as in an application: strict, with no settings of this project."""
    result = subprocess.run(
        [
            sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={cache}", "--no-error-summary",
            "--hide-error-context", *args,
        ],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert not result.stderr
    return result.stdout.splitlines()


def plain(revealed: str) -> str:
    """Return a revealed type without modules, written one way."""
    return TYPED_DICT.sub(r"\1", MODULES.sub("", revealed)).replace(ANY_PARAMS, "...")


def reported_for(sample: Path, cache: Path) -> dict[int, tuple[str, str]]:
    """Return mypy's reports on a sample, by line. A line of another file is a fault of the package itself."""
    reported: dict[int, tuple[str, str]] = {}
    for line in mypy(cache, str(sample)):
        match = REPORTED.match(line)
        if match and match["is"]:
            reported[int(match["line"])] = ("is", plain(match["is"]))
        elif match:
            assert Path(match["file"]).name == sample.name, line
            reported[int(match["line"])] = ("error", match["error"])
    return reported


@pytest.mark.promise("Contract and operation", "Type checkers infer the types of reads and handles")
@pytest.mark.parametrize("name", ["sync_reads", "async_reads"])
def test_mypy_infers_the_types_that_the_samples_state(name: str, cache: Path) -> None:
    sample = SAMPLES / f"{name}.py"
    expected = expected_of(sample)
    reported = reported_for(sample, cache)
    wrong = {line: (reported.get(line), expected.get(line)) for line in expected.keys() | reported.keys()}
    assert {line: pair for line, pair in sorted(wrong.items()) if pair[0] != pair[1]} == {}
    assert len(expected) > 5


def test_the_documentation_s_examples_pass_strict_mypy(cache: Path) -> None:
    examples = sorted((ROOT / "docs" / "examples").glob("*.py"))
    assert len(examples) == 5
    # Django has no types of its own, and so its decorators none either.
    assert mypy(cache, "--ignore-missing-imports", "--allow-untyped-decorators", *map(str, examples)) == []
