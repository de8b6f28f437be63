"""Fixtures shared by the unit tests."""

from __future__ import annotations

import pytest

from tests.support.timing import Time


@pytest.fixture
def time() -> Time:
    """Return a monotonic clock that only the test moves."""
    return Time()
