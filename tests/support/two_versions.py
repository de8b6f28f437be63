"""A query whose version is set by the environment, as in two releases of an application."""

from __future__ import annotations

import os
from typing import Any

from refresher import query
from tests.support.scripted_queries import control_redis

VERSION = "TEST_QUERY_VERSION"
NAME = "two_versions"


@query(NAME, ttl="1h", slots=64, grace="1h", version=int(os.environ.get(VERSION, "1")))
def two_versions(tx: Any, key: str) -> str:
    """Return the source, and the version of the query that read it."""
    with control_redis() as control:
        return f"{control.get(f'source:{key}')} v{os.environ.get(VERSION, '1')}"
