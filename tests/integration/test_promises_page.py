"""The tables of docs/development/promises.md: each test exists, in the tier that the page names."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| .+ \| ([a-z-]+) \| `(\S+::test_\w+)` \|$", re.MULTILINE)
TARGETS = {"check": "check", "test": "test", "all": "test-all", "long": "test-long"}

COLLECTING = """
import pytest, sys
class Printing:
    def pytest_collection_finish(self, session):
        from tests.support.tiers import tier_of
        for item in session.items:
            print("ITEM", tier_of(item), item.nodeid)
sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:randomly", *sys.argv[1:]], plugins=[Printing()]))
"""


def test_each_promise_names_a_test_that_exists_in_that_tier() -> None:
    rows = ROW.findall((ROOT / "docs/development/promises.md").read_text("utf-8"))
    assert len(rows) > 60
    paths = sorted({f"tests/{test.partition('::')[0]}" for _, test in rows})
    done = subprocess.run(
        [sys.executable, "-c", COLLECTING, *paths], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr
    tiers: dict[str, set[str]] = {}
    for tier, nodeid in re.findall(r"^ITEM (\w+) tests/(\S+::test_\w+)", done.stdout, re.MULTILINE):
        tiers.setdefault(nodeid, set()).add(TARGETS[tier])
    wrong = {test: tiers.get(test, "no such test") for tier, test in rows if tier not in tiers.get(test, ())}
    assert wrong == {}, "tests that the page names, and the tiers in which they are"
