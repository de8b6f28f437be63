"""Sizes of what ships, of benchmarks and tests: no function, file or folder grows past what is read at a glance."""

from __future__ import annotations

import ast
from collections import Counter
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[3]
MAX_FUNCTION_LINES, MAX_FILE_LINES, MAX_MODULES = 40, 500, 15
FILES = sorted(
    chain.from_iterable((ROOT / folder).rglob("*.py") for folder in ("api_client", "refresher", "benchmarks"))
)


def _lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return a function's lines without its decorators and its docstring."""
    first, last = function.body[0], function.end_lineno or 0
    documented = ast.get_docstring(function) is not None
    return last - function.lineno + 1 - documented * ((first.end_lineno or 0) - first.lineno + 1)


def _functions(source: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_no_function_has_more_than_40_lines_without_its_docstring() -> None:
    found = [(path.relative_to(ROOT), one) for path in FILES for one in _functions(path.read_text())]
    assert len(found) > 1_000
    assert [f"{path}: {one.name} {_lines(one)}" for path, one in found if _lines(one) > MAX_FUNCTION_LINES] == []


def test_no_file_has_more_than_500_lines() -> None:
    files = [*FILES, *(ROOT / "tests").rglob("*.py")]
    lines = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in files}
    assert {path: count for path, count in lines.items() if count > MAX_FILE_LINES} == {}


def test_no_folder_of_what_ships_has_more_than_15_modules_beside_its_init() -> None:
    modules = Counter(str(path.parent.relative_to(ROOT)) for path in FILES if path.name != "__init__.py")
    assert {folder: count for folder, count in modules.items() if count > MAX_MODULES} == {}
