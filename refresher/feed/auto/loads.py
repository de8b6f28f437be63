"""Tags of a load's reads, from the plans of its Cypher."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import neo4j
from neo4j.exceptions import DriverError, Neo4jError
from neo4j.graph import Node

from api_client.protocol.clock import monotonic_seconds
from api_client.protocol.entry import Header
from api_client.protocol.keys import CacheKey
from api_client.protocol.tags import MAX_TAGS
from refresher.errors import text_of
from refresher.feed.auto.dependencies import Dependencies, Dependency
from refresher.feed.auto.expressions import unquoted
from refresher.feed.auto.plans import dependencies_of
from refresher.feed.watches import Watches, node_tags, relationship_tags
from refresher.graph.reads import Explain

log: Final = logging.getLogger(__name__)

MAX_PLANS: Final = 1_000
PLAN_SECONDS: Final = 300.0
"""Time for which a plan is kept, since it depends on schema and statistics."""


class Plans:
    """Dependencies by Cypher text, looked up again from time to time. Thread-safe."""

    def __init__(self, watches: Watches, *, monotonic: Callable[[], float] = monotonic_seconds) -> None:
        self._watches, self._monotonic = watches, monotonic
        self._kept: dict[object, tuple[float, Dependencies]] = {}
        self._warned: set[tuple[str, str]] = set()

    def reads(self, query: str) -> Reads:
        """Return the follower for one load of a query."""
        return Reads(self, query)

    def of(self, query: str, cypher: str, parameters: Mapping[str, Any], explain: Explain) -> Dependencies:
        """Return the dependencies of a text's result, requesting its plan unless it is kept.

        Raises:
            Neo4jError, DriverError: the graph could not be queried; the next attempt may succeed.
        """
        # The plan may depend on the length of a list.
        shape = tuple((name, _shape(parameters[name])) for name in sorted(parameters))
        now = self._monotonic()
        kept = self._kept.get((cypher, shape))
        if kept is not None and now < kept[0]:
            found = kept[1]
        else:
            found = self.explained(cypher, parameters, explain)
            self._kept[cypher, shape] = now + PLAN_SECONDS, found
            for key in islice(list(self._kept), max(0, len(self._kept) - MAX_PLANS)):
                self._kept.pop(key, None)
        for why in found.gaps:
            self.warn(query, f"{why}, in {_shown(cypher)}")
        return found

    def explained(self, cypher: str, parameters: Mapping[str, Any], explain: Explain) -> Dependencies:
        """Return the dependencies of a text's result by the graph's present plan."""
        if re.match(r"\s*(?:explain|profile)\b", cypher, re.IGNORECASE):
            return Dependencies(gaps=("EXPLAIN and PROFILE",))
        try:
            plan = explain(cypher, parameters)
        except (Neo4jError, DriverError) as error:
            if error.is_retryable():
                raise
            return Dependencies(gaps=(f"EXPLAIN was refused: {text_of(error)}",))
        return dependencies_of(cypher, plan, self._watches) if plan else Dependencies(gaps=("it has no plan",))

    def warn(self, query: str, why: str) -> None:
        """Warn once about dependencies of a query's values that no tag covers."""
        if (query, why) in self._warned or len(self._warned) >= MAX_PLANS:
            return
        self._warned.add((query, why))
        log.warning("%s: the change feed does not see all that it depends on, its TTL does: %s", query, why)
        if len(self._warned) == MAX_PLANS:
            log.warning("further ones are not logged: do loaders write values into their Cypher?")


class Reads:
    """The reads of one load, and the tags of its value."""

    def __init__(self, plans: Plans, query: str) -> None:
        self._plans, self._query = plans, query
        self._tags: dict[str, None] = {}
        self.is_outdated: bool = False
        """True once an invalidated entry was read."""
        self.is_covered: bool = True
        """False once something was read that no tag covers."""

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of all reads, however many."""
        return tuple(self._tags)

    def note(self, cypher: str, parameters: Mapping[str, Any], result: neo4j.Result, explain: Explain) -> None:
        """Note a query that has just been run, whose ``result`` is not consumed yet.

        Raises:
            Neo4jError, DriverError: the graph did not return its plan.
        """
        found = self._plans.of(self._query, cypher, parameters, explain)
        self.is_covered &= not found.gaps
        rows = _rows(result) if any(one.shown for one in found.found) else None
        for one in found.found:
            self._tags.update(dict.fromkeys(_tags_of(one, parameters, rows)))

    def note_entry(self, key: CacheKey, header: Header) -> None:
        """Note an entry that the loader has read, and on whose dependencies this value depends too."""
        self._tags.update(dict.fromkeys(header.tags))
        if header.generation > header.token:
            self.is_outdated = True  # set even if threads of the loader read at the same time
        if not header.tags:
            self.is_covered = False
            self._plans.warn(self._query, f"it reads {key.query}, whose entry has no tags")


def _tags_of(one: Dependency, parameters: Mapping[str, Any], rows: list[neo4j.Record] | None) -> tuple[str, ...]:
    values: list[Any] | None = None
    if one.key is not None:
        values = one.key.values(parameters)
    elif one.shown:
        values = _shown_keys(one, rows)
    if values == []:
        return ()  # no node was looked up, or none was found
    if one.is_type:
        return relationship_tags(one.name, one.label, *values) if values else relationship_tags(one.name)
    return node_tags(one.name, *(values or ()))


def _rows(result: neo4j.Result) -> list[neo4j.Record] | None:
    """Return all rows of a result, which keeps them; None if they are more than an entry may have tags."""
    buffer = getattr(result, "_buffer", None)  # the driver has no public way to peek at more than one
    if buffer is None:
        return None
    buffer(MAX_TAGS + 1)
    rows = list(getattr(result, "_record_buffer", None) or ())
    return rows if len(rows) <= MAX_TAGS else None


def _shown_keys(one: Dependency, rows: list[neo4j.Record] | None) -> list[Any] | None:
    """Return the keys of the nodes that a result shows (None for a node without); None if there may be other nodes."""
    if rows is None:
        return None
    column, *path = one.shown
    try:
        return [key for row in rows for key in _keys_in(row[unquoted(column)], path, one)]
    except (AttributeError, KeyError, TypeError):
        return None


def _keys_in(value: Any, path: Sequence[str], one: Dependency) -> Iterator[Any]:
    if isinstance(value, Node):
        if one.name in value.labels:
            yield value.get(one.key_property)
    elif not path:
        yield value
    elif path[0] == "*":
        for each in value:
            yield from _keys_in(each, path[1:], one)
    elif value is not None:
        yield from _keys_in(value.get(path[0]) if len(path) == 1 else value[path[0]], path[1:], one)


def _shape(value: object) -> object:
    return type(value), min(2, len(value)) if isinstance(value, list | tuple) else 0


def _shown(cypher: str) -> str:
    return repr(" ".join(cypher.split())[:200])
