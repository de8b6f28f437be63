"""Texts of Cypher in a query's loader, and what they depend on, before anything is loaded.

They are found among the constants of its code, and of its module where it names them. What a loader makes of parts is
found at its first load.
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
    """A text of a query, and what its result depends on."""

    query: str
    cypher: str
    found: Dependencies

    @property
    def is_coarse(self) -> bool:
        """True where any change of a label or type invalidates it, or one that no tag stands for may."""
        return bool(self.found.gaps) or all(one.key is None and not one.shown for one in self.found.found)


def look_up(queries: Iterable[Query], settings: WorkerSettings) -> list[TextFound]:
    """Return each text of the loaders of the queries whose tags are found so; queries the graph for their plans.

    Raises:
        Neo4jError, DriverError, ConfigurationError: it can't be queried.
    """
    plans = Plans(watches)
    driver = open_driver(settings)
    # Without its parameters a text is explained all the same, with a warning.
    quiet = driver.session(database=settings.neo4j_database or None, notifications_min_severity="OFF")
    with closing(driver), quiet as session:
        return [
            TextFound(query.name, cypher, plans.explained(cypher, {}, partial(plan_of, session)))
            for query in queries
            if query.tags == AUTO
            for cypher in texts_of(query.loader)
        ]


def coarse_queries(found: Iterable[TextFound]) -> dict[str, str]:
    """Return the queries of whose texts none has fine tags, each with the reasons."""
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
