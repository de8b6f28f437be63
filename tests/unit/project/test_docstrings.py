"""Docstrings: a noun phrase or an imperative, the subject first."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
_QUESTION: Final = re.compile(r"(What|Whether|How|Who|Where|When|Why)\b")


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of a file, and those below its names, with their lines."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        for one in getattr(node, "body", []) if isinstance(getattr(node, "body", None), list) else []:
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str):
                yield one.lineno, one.value.value


@pytest.mark.parametrize("package", ["api_client", "refresher", "benchmarks"])
def test_no_docstring_begins_with_a_question_word(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, text in texts_of(path)
        if _QUESTION.match(text)
    ]
    assert found == []
