"""The page on faults: each row of its tables is held by tests, and each of those tests stands in a row."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from api_client import ReaderEvents, ReaderSettings
from tests.unit.project.test_project_files import settings_in_code

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "when-things-fail.md").read_text(encoding="utf-8")
READERS, WORKERS = PAGE.split("\n## When workers fail")
FOLDERS = {"faults": READERS, "worker_faults": WORKERS}
# Faults whose tests need other servers than those of the folder.
ELSEWHERE = {
    "faults": "integration/links/test_idle_and_slow.py",
    "worker_faults": "acceptance/test_replaced_broker_keys.py",
}


def names_of_tests(*files: Path) -> set[str]:
    return {name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)}


def fault_tests(folder: str) -> set[str]:
    return names_of_tests(*(ROOT / "tests" / "acceptance" / folder).glob("test_*.py"))


def rows_of(folder: str) -> list[str]:
    return [line for line in FOLDERS[folder].splitlines() if line.startswith("| ") and "<!--" in line]


def named_in(row: str) -> set[str]:
    return set(row.split("<!--", 1)[1].split("-->", 1)[0].split())


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_row_of_a_table_is_held_by_a_test(folder: str) -> None:
    rows, tests = rows_of(folder), fault_tests(folder) | names_of_tests(ROOT / "tests" / ELSEWHERE[folder])
    table = FOLDERS[folder].split("| --- |", 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    assert table == rows
    assert len(rows) > 10
    for row in rows:
        assert named_in(row), row
        assert named_in(row) <= tests, row


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_test_of_a_fault_stands_in_a_row(folder: str) -> None:
    assert fault_tests(folder) <= set.union(*map(named_in, rows_of(folder)))


def test_the_bounds_have_the_settings_own_defaults() -> None:
    said = dict(re.findall(r"`([A-Z]+_[A-Z_]+)` [(]([^)]+)[)]", READERS))
    assert len(said) == 4
    for name, _, settings, field in settings_in_code():
        if settings is ReaderSettings and name in said:
            default = getattr(ReaderSettings(), field)
            assert getattr(ReaderSettings.from_env({name: said.pop(name)}), field) == default
    assert said == {}


def test_the_events_are_those_of_a_reader() -> None:
    table = READERS.rpartition("| --- |")[2]
    events = re.findall(r"^[|] `(\w+)", table, re.MULTILINE)
    assert len(events) == 7
    assert [event for event in events if event not in vars(ReaderEvents)] == []
