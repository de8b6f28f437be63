"""Cypher texts in a query's loader, and their dependencies, before anything is loaded.

They are found among the constants of its code, and among those of its module that it names. A text that a loader
composes is found at its first load.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from types import CodeType
from typing import Any, Final

from refresher.feed.auto.dependencies import Dependencies
from refresher.feed.auto.loads import Plans
from refresher.feed.watches import watches
from refresher.graph.driver import open_driver
from refresher.graph.reads import plan_of
from refresher.queries import AUTO, Query
from refresher.settings import WorkerSettings

_CYPHER: Final = re.compile(
    r"\s*(?:CYPHER|MATCH|OPTIONAL\s+MATCH|UNWIND|WITH|CALL)\b.*\b(?:RETURN|YIELD)\b", re.IGNORECASE | re.DOTALL
)


@dataclass(frozen=True, slots=True)
class TextFound:
    """A Cypher text of a query, with its result's dependencies."""

    query: str
    cypher: str
    found: Dependencies

    @property
    def is_coarse(self) -> bool:
        """True if any change of a label or type invalidates it, or if it has dependencies that no tag covers."""
        return bool(self.found.gaps) or all(one.key is None and not one.shown for one in self.found.found)


def look_up(queries: Iterable[Query], settings: WorkerSettings) -> list[TextFound]:
    """Return each text in the loaders of queries with automatic tags, querying the graph for their plans.

    Raises:
        Neo4jError, DriverError, ConfigurationError: the graph can't be queried.
    """
    plans = Plans(watches)
    driver = open_driver(settings)
    # A text can be explained without its parameters, but with a warning.
    quiet = driver.session(database=settings.neo4j_database or None, notifications_min_severity="OFF")
    with closing(driver), quiet as session:
        return [
            TextFound(query.name, cypher, plans.explained(cypher, {}, partial(plan_of, session)))
            for query in queries
            if query.tags == AUTO
            for cypher in texts_of(query.loader)
        ]


def coarse_queries(found: Iterable[TextFound]) -> dict[str, str]:
    """Return the queries none of whose texts has fine tags, with the reasons."""
    whys: dict[str, dict[str, None]] = {}
    fine = set()
    for one in found:
        known = whys.setdefault(one.query, {})
        known.update(dict.fromkeys((*one.found.gaps, *(dependency.why for dependency in one.found.found))))
        if not one.is_coarse:
            fine.add(one.query)
    return {query: "; ".join(filter(None, why)) for query, why in whys.items() if query not in fine}


def texts_of(loader: Callable[..., Any]) -> list[str]:
    """Return the texts in a loader's code that look like Cypher."""
    function = inspect.unwrap(loader)
    names: Mapping[str, Any] = getattr(function, "__globals__", {})
    code = getattr(function, "__code__", None)
    constants = _constants_of(code, names) if code is not None else ()
    return [text for text in dict.fromkeys(constants) if text != function.__doc__ and _CYPHER.match(text)]


def _constants_of(code: CodeType, names: Mapping[str, Any]) -> Iterator[str]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _constants_of(constant, names)
        elif isinstance(constant, str):
            yield constant
    yield from (names[name] for name in code.co_names if isinstance(names.get(name), str))
