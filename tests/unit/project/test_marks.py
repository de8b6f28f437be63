"""The pages of promises and failures against the marks of tests: each row has a test, each failure test a row."""

from __future__ import annotations

import re
from pathlib import Path

from api_client import ReaderSettings
from tests.support.promises_page import PAGE, TESTS, from_marks, marked_tests
from tests.support.settings_page import settings_in_code

TEXT = (TESTS.parent / "docs" / "reference" / "failures.md").read_text(encoding="utf-8")
ROWS = [name for cell in re.findall(r"^\| ((?:[RW]\d+ ?)+)\|", TEXT, re.MULTILINE) for name in cell.split()]
FOLDERS = ("acceptance/faults", "acceptance/worker_faults")


def test_the_page_of_promises_is_made_of_the_tests_marks() -> None:
    assert PAGE.read_text(encoding="utf-8") == from_marks(), "python -m tests.support.promises_page writes it"


def names_of_tests(file: Path) -> set[str]:
    return set(re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE))


def test_each_numbered_row_has_tests() -> None:
    for letter in "RW":
        numbers = sorted(int(row[1:]) for row in ROWS if row.startswith(letter))
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) > 10
    assert {row for test in marked_tests("failure") for row in test.arguments} == set(ROWS)


def test_each_test_of_a_failure_is_marked_with_its_rows() -> None:
    names = set[str]().union(*(names_of_tests(file) for one in FOLDERS for file in (TESTS / one).glob("test_*.py")))
    assert names - {test.name for test in marked_tests("failure")} == set()


def test_the_bounds_have_the_defaults_of_the_settings() -> None:
    printed = dict(re.findall(r"`([A-Z]+_[A-Z_]+)` [(]([^)]+)[)]", TEXT))
    assert len(printed) == 4
    for name, _, settings, field in settings_in_code():
        if settings is ReaderSettings and name in printed:
            default = getattr(ReaderSettings(), field)
            assert getattr(ReaderSettings.from_env({name: printed.pop(name)}), field) == default
    assert printed == {}
