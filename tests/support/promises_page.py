"""The page of promises, made of the tests' marks (``python -m tests.support.promises_page``)."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[1]
PAGE: Final = TESTS.parent / "docs" / "development" / "promises.md"
PARTS: Final = ("Protocol", "Reading", "Refreshing", "Contract and operation")
_HEAD: Final = """\
# Promises and their tests

Each promise has a test here that fails when it is broken; most have more. I1 to I6 are the
[guarantees](../explanation/guarantees.md#guarantees). The tests of each [failure](../reference/failures.md) are marked
with the number of its row. [Tests](../../CONTRIBUTING.md#tests) explains how to run them.

`python -m tests.support.promises_page` generates this page from the marks `@pytest.mark.promise(part, promise)`.
"""


@dataclass(frozen=True, slots=True)
class MarkedTest:
    """A test, by its file in `tests` and its name, and the arguments of its mark."""

    file: str
    name: str
    arguments: tuple[str, ...]


def marked_tests(mark: str) -> list[MarkedTest]:
    """Return the tests with a mark, in the order of their files and lines."""
    sources = ((file, file.read_text(encoding="utf-8")) for file in sorted(TESTS.rglob("test_*.py")))
    return [
        MarkedTest(file.relative_to(TESTS).as_posix(), function.name, tuple(map(ast.literal_eval, decorator.args)))
        for file, source in sources
        if f"mark.{mark}(" in source
        for function in ast.parse(source).body
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for decorator in function.decorator_list
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == f"pytest.mark.{mark}"
    ]


def from_marks() -> str:
    """Return the page. A part has its promises in the order of the tests; those of an invariant, by its number, first.

    Raises:
        ValueError: a mark names another part.
    """
    parts: dict[str, list[str]] = {part: [] for part in PARTS}
    for test in marked_tests("promise"):
        part, promise = test.arguments
        if part not in parts:
            raise ValueError(f"{test.file}::{test.name} is marked for no part of the page: {part}")
        parts[part].append(f"- {promise}<br>`{test.file}::{test.name}`\n")
    return _HEAD + "".join(f"\n## {part}\n\n{''.join(sorted(rows, key=_invariant))}" for part, rows in parts.items())


def _invariant(row: str) -> str:
    start = row.removeprefix("- ")[:2]
    return start if start[0] == "I" and start[1].isdigit() else "J"


if __name__ == "__main__":
    PAGE.write_text(from_marks(), encoding="utf-8")
