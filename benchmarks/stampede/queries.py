"""Query of this project's worker, on the same origin as all strategies. Imported only by the worker."""

from __future__ import annotations

import functools
from typing import Any

from benchmarks.stampede.config import GRACE_SECONDS, Config
from benchmarks.stampede.origin import Origin
from benchmarks.stampede.strategies.ours import QUERY
from refresher import query
from refresher.queries import MAX_SLOTS

_CONFIG = Config.from_environ()


@functools.cache
def _origin(variant: str) -> Origin:
    return Origin(_CONFIG, variant)


@query(QUERY, ttl=_CONFIG.expires_seconds, slots=MAX_SLOTS, grace=GRACE_SECONDS)
def stampede(tx: Any, variant: str, number: int) -> dict[str, Any]:
    """Make the value of a variant's number."""
    value: dict[str, Any] = _origin(variant).compute(number)
    return value
