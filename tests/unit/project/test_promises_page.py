"""The page of promises, compared with the marks in the tests."""

from __future__ import annotations

from tests.support.promises_page import PAGE, from_marks


def test_the_page_of_promises_is_made_of_the_tests_marks() -> None:
    assert PAGE.read_text(encoding="utf-8") == from_marks(), "python -m tests.support.promises_page writes it"
