"""The refresher with fakes that most tests of the flow run."""

from __future__ import annotations

import pytest

from tests.support.fake_refresher import Worker


@pytest.fixture
def worker() -> Worker:
    return Worker()
