"""Returns of a loader in place of a bare value, and the previous value for loaders that ask for it."""

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
"""Return value of a conditional loader, also within a `Result`, where the previous value is still true.

The entry is fresh again for its TTL, under the fence as any other commit; its payload stays as it is.
"""


@dataclass(frozen=True, slots=True)
class Previous:
    """Content of the entry when its refresh begins: given to loaders of queries with ``conditional=True``.

    Args:
        value: as a reader without a ``type`` gets it.
        loaded_at: when it was loaded, or last found unchanged, by Redis' clock; in UTC.
        version: what the `Result` that it came from had set, or what the query's ``version_cypher`` had returned (a
            list of columns); None if neither.
    """

    value: Any
    loaded_at: datetime
    version: Any


@dataclass(frozen=True, slots=True)
class Result:
    """A value with terms of its own. What is None is as the query has it.

    They are checked in the worker after the load: wrong ones abandon the refresh with kind ``result`` (tags: ``tags``),
    and the stale value stays.

    Args:
        value: what is cached, and what readers get; or `UNCHANGED`.
        ttl: how long it is fresh; 0: it is returned to its waiting readers alone, and not cached.
        grace: how much longer it may be served while it is stale.
        tags: what it depends on, beside the query's own tags, which have to be declared: ``@query(tags=[])`` at least.
        negative: whether the query's ``negative_ttl`` applies, where ``ttl`` is not given; None: if the value is empty.
        version: of the source, text of at most 200 characters or a whole number of 64 bits: what the next load finds in
            its `Previous`. For conditional queries.
    """

    value: Any
    ttl: Duration | None = None
    grace: Duration | None = None
    tags: Iterable[str] = ()
    negative: bool | None = None
    version: str | int | None = None
