"""What this project's worker loads: the same origin as everyone's. Imported by the worker alone."""

from __future__ import annotations

import functools
from typing import Any

from benchmarks.stampede.origin import Origin
from benchmarks.stampede.strategies.ours import QUERY
from benchmarks.stampede.terms import GRACE_SECONDS, Terms
from refresher import query
from refresher.queries import MAX_CONCURRENCY

_TERMS = Terms.from_environ()


@functools.cache
def _origin(lane: str) -> Origin:
    return Origin(_TERMS, lane)


@query(QUERY, ttl=_TERMS.expires_seconds, concurrency=MAX_CONCURRENCY, grace=GRACE_SECONDS)
def stampede(tx: Any, lane: str, number: int) -> dict[str, Any]:
    """Make the value of a lane's number."""
    return _origin(lane).compute_in(tx, number)
