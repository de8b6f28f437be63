"""Tests of the feed, each with watches of its own."""

import pytest


@pytest.fixture(autouse=True)
def watches_of_its_own(nothing_watched: None) -> None:
    """Let each test watch for itself."""
