"""The page on faults: each row of its table is held by tests, and each of those tests stands in a row."""

from __future__ import annotations

import re
from pathlib import Path

from api_client import ReaderEvents, ReaderSettings
from tests.unit.test_project_files import settings_in_code

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "when-things-fail.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and "<!--" in line]


def fault_tests() -> set[str]:
    files = (ROOT / "tests" / "acceptance" / "faults").glob("test_*.py")
    return {name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)}


def named_in(row: str) -> set[str]:
    return set(row.split("<!--", 1)[1].split("-->", 1)[0].split())


def test_each_row_of_the_table_is_held_by_a_test() -> None:
    table = PAGE.split("| --- |", 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    assert table == ROWS
    assert len(ROWS) > 10
    for row in ROWS:
        assert named_in(row), row
        assert named_in(row) <= fault_tests(), row


def test_each_test_of_a_fault_stands_in_a_row() -> None:
    assert set.union(*map(named_in, ROWS)) == fault_tests()


def test_the_bounds_have_the_settings_own_defaults() -> None:
    said = dict(re.findall(r"`([A-Z]+_[A-Z_]+)` [(]([^)]+)[)]", PAGE))
    assert len(said) == 3
    for name, _, settings, field in settings_in_code():
        if settings is ReaderSettings and name in said:
            default = getattr(ReaderSettings(), field)
            assert getattr(ReaderSettings.from_env({name: said.pop(name)}), field) == default
    assert said == {}


def test_the_events_are_those_of_a_reader() -> None:
    table = PAGE.rpartition("| --- |")[2]
    events = re.findall(r"^[|] `(\w+)", table, re.MULTILINE)
    assert len(events) == 6
    assert [event for event in events if event not in vars(ReaderEvents)] == []
