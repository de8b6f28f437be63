"""Return values of a loader in place of a bare value, and the previous value for conditional loaders."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final

from api_client.config.durations import Duration


class Unchanged(Enum):
    """The type of `UNCHANGED`."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED
"""Return value of a conditional loader, also within a `Result`, if the previous value is still valid.

The entry is fresh again for its TTL, fenced like any other commit; its payload stays as it is.
"""


@dataclass(frozen=True, slots=True)
class Previous:
    """Content of the entry at the start of its refresh, for loaders of queries with ``conditional=True``.

    Args:
        value: the value, as a reader without a ``type`` gets it.
        loaded_at: the time when it was loaded, or last found unchanged, by Redis' clock; in UTC.
        version: the version set by its `Result` or returned by the query's ``version_cypher`` (a list of columns); None
            if there is neither.
    """

    value: Any
    loaded_at: datetime
    version: Any


@dataclass(frozen=True, slots=True)
class Result:
    """A value with its own terms; those that are None are the query's.

    The worker checks them after the load: if they are wrong, the refresh is abandoned with kind ``result`` (for tags
    ``tags``), and the stale value stays.

    Args:
        value: the value for the cache and for readers, or `UNCHANGED`.
        ttl: the time for which it is fresh; with 0 it is only returned to its waiting readers, and not cached.
        grace: the further time for which it may be served while stale.
        tags: its tags besides the query's own, which have to be declared: ``@query(tags=[])`` at least.
        negative: True or False if the query's ``negative_ttl`` applies or not, unless ``ttl`` is given; None: if the
            value is empty.
        version: the source's version for the next load's `Previous`, text of at most 200 characters or a whole number
            of 64 bits. For conditional queries.
    """

    value: Any
    ttl: Duration | None = None
    grace: Duration | None = None
    tags: Iterable[str] = ()
    negative: bool | None = None
    version: str | int | None = None
