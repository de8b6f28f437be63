"""The tables of docs/development/promises.md: each test exists, in the tier that the page names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.tiers import FOLDERS

ROOT = Path(__file__).parents[3]
ROWS = re.findall(
    r"^\| .+ \| ([a-z-]+) \| `(\S+)::(test_\w+)` \|$",
    (ROOT / "docs/development/promises.md").read_text("utf-8"),
    re.MULTILINE,
)


def test_the_tables_are_read_whole() -> None:
    assert len(ROWS) > 40


@pytest.mark.parametrize(("tier", "path", "name"), ROWS, ids=[name for _, _, name in ROWS])
def test_each_promise_names_a_test_that_exists_in_that_tier(tier: str, path: str, name: str) -> None:
    source = (ROOT / "tests" / path).read_text("utf-8")
    # Defined there, or imported, which runs it with the fixtures of that file.
    found = re.search(rf"^((?:@.*\n(?:[ )].*\n)*)*)(?:(?:async )?def |    ){name}\b", source, re.MULTILINE)
    assert found, f"tests/{path} has no {name}"
    if path.startswith("unit/"):
        assert tier == "check"
    elif f"tests/{path}".startswith(tuple(FOLDERS)):
        assert tier == (
            "test" if "mark.smoke" in found[1] or "pytestmark = pytest.mark.smoke" in source else "test-all"
        )
    else:
        assert tier == "test"
