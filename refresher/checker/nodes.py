"""Nodes that a watch writes, and reads by the query of `refresher.watch`; they have a label of their own."""

from __future__ import annotations

from typing import Final, LiteralString

from refresher.checker.writer import WatchedQuery

WATCH_QUERY: Final = "refresher.watch"
WATCH_LABEL: Final = "RefresherWatch"
WATCH_PARAM: Final = "node"
WATCHED: Final = WatchedQuery(
    WATCH_QUERY, WATCH_PARAM,
    "MATCH (watched:RefresherWatch {id: $name}) SET watched.version = watched.version + 1 "
    "RETURN watched.version AS version",
)  # fmt: skip

CREATE_NODES: Final[LiteralString] = "UNWIND $names AS name CREATE (:RefresherWatch {id: name, version: 0})"
READ_NODE: Final[LiteralString] = "MATCH (watched:RefresherWatch {id: $node}) RETURN watched.version AS version"
REMOVE_NODES: Final[LiteralString] = "MATCH (watched:RefresherWatch) WHERE watched.id IN $names DELETE watched"
