"""What unit tests share."""

from __future__ import annotations

import pytest

from tests.support.clock import Time


@pytest.fixture
def time() -> Time:
    """A monotonic clock that only the test moves."""
    return Time()
