"""The table of docs/reference/failures.md: tests verify each numbered row, and each failure test has a row."""

from __future__ import annotations

import re
from pathlib import Path

from api_client import ReaderEvents, ReaderSettings
from tests.support.settings_page import settings_in_code

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "failures.md").read_text(encoding="utf-8")
TEXT, LISTED = PAGE.split("\n## Tests of each row\n")
ROWS = [name for cell in re.findall(r"^\| ((?:[RW]\d+ ?)+)\|", TEXT, re.MULTILINE) for name in cell.split()]
FOLDERS = ("acceptance/faults", "acceptance/worker_faults")
ELSEWHERE = (
    "integration/links/test_idle_and_slow.py", "acceptance/test_replaced_broker_keys.py",
    "acceptance/test_broker_behind_sentinels.py",
)  # fmt: skip
"""Files of tests that need other servers."""


def names_of_tests(*files: Path) -> set[str]:
    return {name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)}


def names_in_folders() -> set[str]:
    return names_of_tests(*(file for folder in FOLDERS for file in (ROOT / "tests" / folder).glob("test_*.py")))


def listed() -> dict[str, set[str]]:
    """Return the tests listed for each row."""
    lines = re.findall(r"^\| ([RW]\d+) \| (.+) \|$", LISTED, re.MULTILINE)
    return {row: set(re.findall(r"`(test_\w+)`", tests)) for row, tests in lines}


def test_existing_tests_are_listed_for_each_row() -> None:
    existing = names_in_folders() | names_of_tests(*(ROOT / "tests" / file for file in ELSEWHERE))
    for letter in "RW":
        numbers = sorted(int(row[1:]) for row in ROWS if row.startswith(letter))
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) > 10
    assert sorted(listed()) == sorted(ROWS)
    for row, tests in listed().items():
        assert tests, row
        assert tests <= existing, row


def test_each_test_of_a_failure_is_listed_for_a_row() -> None:
    assert names_in_folders() <= set.union(*listed().values())


def test_the_bounds_have_the_defaults_of_the_settings() -> None:
    printed = dict(re.findall(r"`([A-Z]+_[A-Z_]+)` [(]([^)]+)[)]", TEXT))
    assert len(printed) == 4
    for name, _, settings, field in settings_in_code():
        if settings is ReaderSettings and name in printed:
            default = getattr(ReaderSettings(), field)
            assert getattr(ReaderSettings.from_env({name: printed.pop(name)}), field) == default
    assert printed == {}


def test_the_listed_events_are_events_of_a_reader() -> None:
    table = TEXT.split("\n## What the reader reports\n")[1].split("\n## ")[0]
    events = re.findall(r"^[|] `(\w+)", table, re.MULTILINE)
    assert len(events) == 7
    assert [event for event in events if event not in vars(ReaderEvents)] == []
