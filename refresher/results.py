"""Results that set their own terms: what a loader may return in place of a bare value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from api_client.config.durations import Duration


@dataclass(frozen=True, slots=True)
class Result:
    """A value with terms of its own. What is None is as the query has it.

    They are checked in the worker after the load: wrong ones abandon the refresh with kind ``result`` (tags: ``tags``),
    and the stale value stays.

    Args:
        value: what is cached, and what readers get.
        ttl: how long it is fresh; 0: it is returned to its waiting readers alone, and not cached.
        grace: how much longer it may be served while it is stale.
        tags: what it depends on, beside the query's own tags, which have to be declared: ``@query(tags=[])`` at least.
        negative: whether the query's ``negative_ttl`` applies, where ``ttl`` is not given; None: if the value is empty.
    """

    value: Any
    ttl: Duration | None = None
    grace: Duration | None = None
    tags: Iterable[str] = ()
    negative: bool | None = None
