"""The tables of docs/explanation/when-things-fail.md: tests verify each row, and each failure test has a row."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from api_client import ReaderEvents, ReaderSettings
from tests.support.settings_page import settings_in_code

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "explanation" / "when-things-fail.md").read_text(encoding="utf-8")
TABLES, LISTED = PAGE.split("\n## Tests of each row\n")
READERS, WORKERS = TABLES.split("\n## When workers, loads or messages fail\n")


class Failures(NamedTuple):
    """A table of the page, the letter that begins the names of its rows, and where its tests are."""

    text: str
    letter: str
    folder: str
    elsewhere: str
    """A file of tests beside the folder: they need other servers."""


READS = Failures(READERS, "R", "acceptance/faults", "integration/links/test_idle_and_slow.py")
REFRESHES = Failures(WORKERS, "W", "acceptance/worker_faults", "acceptance/test_replaced_broker_keys.py")


def names_of_tests(*files: Path) -> set[str]:
    return {name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)}


def names_in_folder(failures: Failures) -> set[str]:
    return names_of_tests(*(ROOT / "tests" / failures.folder).glob("test_*.py"))


def listed(failures: Failures) -> dict[str, set[str]]:
    """The tests listed for each row of a table."""
    lines = re.findall(rf"^\| ({failures.letter}\d+) \| (.+) \|$", LISTED, re.MULTILINE)
    return {row: set(re.findall(r"`(test_\w+)`", tests)) for row, tests in lines}


@pytest.mark.parametrize("failures", [READS, REFRESHES], ids=["reads", "refreshes"])
def test_existing_tests_are_listed_for_each_row(failures: Failures) -> None:
    rows = re.findall(rf"^\| ({failures.letter}\d+) \|", failures.text, re.MULTILINE)
    existing = names_in_folder(failures) | names_of_tests(ROOT / "tests" / failures.elsewhere)
    assert rows == [f"{failures.letter}{number}" for number in range(1, len(rows) + 1)]
    assert len(rows) > 10
    assert list(listed(failures)) == rows
    for row, tests in listed(failures).items():
        assert tests, row
        assert tests <= existing, row


@pytest.mark.parametrize("failures", [READS, REFRESHES], ids=["reads", "refreshes"])
def test_each_test_of_a_failure_is_listed_for_a_row(failures: Failures) -> None:
    assert names_in_folder(failures) <= set.union(*listed(failures).values())


def test_the_bounds_have_the_defaults_of_the_settings() -> None:
    printed = dict(re.findall(r"`([A-Z]+_[A-Z_]+)` [(]([^)]+)[)]", READERS))
    assert len(printed) == 4
    for name, _, settings, field in settings_in_code():
        if settings is ReaderSettings and name in printed:
            default = getattr(ReaderSettings(), field)
            assert getattr(ReaderSettings.from_env({name: printed.pop(name)}), field) == default
    assert printed == {}


def test_the_events_are_those_of_a_reader() -> None:
    table = READERS.rpartition("| --- |")[2]
    events = re.findall(r"^[|] `(\w+)", table, re.MULTILINE)
    assert len(events) == 7
    assert [event for event in events if event not in vars(ReaderEvents)] == []
