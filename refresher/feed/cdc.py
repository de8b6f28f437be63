"""Neo4j's Change Data Capture as a source of changes: Enterprise Edition and Aura, from 5.17 on.

Written from Neo4j's documentation, and never run against a server that has it. Changes are read from the transaction
log in the order of commits, so a transaction that commits late comes late, and one position tells how far the feed is.
Redis keeps the position beside the entries, so that it is lost or restored together with them; storing it in the graph
would be a change itself. Without a position that the database knows, everything watched is invalidated, and the feed
goes on from the present.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
import neo4j
from neo4j.exceptions import Neo4jError

from api_client.protocol.keys import feed_position_key
from api_client.transport.link import CacheLink
from refresher.feed.changes import Change, Changes, gathered, tags_of
from refresher.feed.errors import FeedError
from refresher.feed.triggers import NOTED_ONE_BY_ONE, Triggers
from refresher.feed.watches import Watches

T = TypeVar("T")
log: Final = logging.getLogger(__name__)

MAX_BATCH_EVENTS: Final = 1_000
"""The last transaction is taken whole, since a query need not resume in the middle of one."""
_DISABLED: Final = "Neo.DatabaseError.ChangeDataCapture.Disabled"
_LOST: Final = ("ChangeDataCapture.InvalidIdentifier", "ChangeDataCapture.ScanFailure")
_CURRENT: Final = "CALL db.cdc.current() YIELD id RETURN id"
_MAY_QUERY: Final = "CALL db.cdc.current() YIELD id CALL db.cdc.query(id) YIELD txId RETURN txId LIMIT 1"
_NODE_KEYS: Final = "SHOW CONSTRAINTS YIELD type, labelsOrTypes, properties WHERE type = 'NODE_KEY' RETURN *"
_QUERY: Final = (
    "CALL db.cdc.query($position, $selectors) YIELD id, txId, metadata, event "
    "RETURN id, txId, metadata.captureMode AS mode, datetime(toString(metadata.txCommitTime)).epochMillis AS at, event"
)


def is_source(triggers: Triggers, watches: Watches) -> bool:
    """Return whether CDC is the source of changes: no trigger is installed, and the database captures changes.

    Warns of watched labels without a node key.

    Raises:
        FeedError: a privilege is missing, or the graph can't be queried.
    """
    try:
        is_watched = bool(watches.nodes or watches.relationships)  # without selectors the query returns all changes
        if not is_watched or not triggers.has("db.cdc.query"):
            return False
        triggers.read(_CURRENT)
        if triggers.installed():
            return False
    except FeedError as error:
        if getattr(error.__cause__, "code", None) == _DISABLED:
            return False
        if "not been enabled" not in str(error):  # APOC's triggers are not enabled, so none runs
            raise
    triggers.read(_MAY_QUERY)
    keyed = {(row["labelsOrTypes"][0], name) for row in triggers.read(_NODE_KEYS) for name in row["properties"]}
    for label, key in sorted(watches.nodes.items() - keyed):
        remedy = f"CREATE CONSTRAINT FOR (n:`{label}`) REQUIRE n.`{key}` IS NODE KEY"
        log.warning("CDC does not name the nodes with the label %s at the ends of relationships: %s", label, remedy)
    return True


class _State(msgspec.Struct):
    properties: dict[str, Any] = {}
    labels: list[str] = []


class _Entity(msgspec.Struct, rename="camel"):
    element_id: str
    labels: list[str]
    keys: dict[str, list[dict[str, Any]]] = {}
    """The properties of each key constraint, by label."""


class _Node(_Entity, kw_only=True, tag_field="eventType", tag="n"):
    state: dict[str, _State | None]


class _Relationship(msgspec.Struct, tag_field="eventType", tag="r"):
    type: str
    start: _Entity
    end: _Entity


class Transaction:
    """The changes of one transaction, added event by event; beyond a limit only labels and types are kept.

    An event contains a node's properties (in mode DIFF only the changed ones), and for a relationship's ends only those
    of node keys. A node that can't be identified by them makes the change a bulk one.
    """

    def __init__(self, number: int, watches: Watches) -> None:
        self.number: int = number
        self.position: str = ""
        self.at_ms: int = 0
        self._watches, self._count = watches, 0
        self._is_known = self._is_named = True
        self._nodes: dict[str, list[Any]] = {}
        self._ends: dict[str, list[_Entity]] = {}
        self._keys: dict[str, list[tuple[str, Any]]] = {}  # by element id: an end's key may change too

    def add(self, row: neo4j.Record) -> None:
        """Add an event."""
        self.position, self.at_ms = row["id"], row["at"]
        self._count += 1
        try:
            event: Any = msgspec.convert(row["event"], _Node | _Relationship)
        except msgspec.ValidationError:
            self._is_known = False
            return
        if isinstance(event, _Node):
            self._add_node(event, is_whole=row["mode"] == "FULL")
        elif event.type in self._watches.relationships:
            self._ends.setdefault(event.type, []).extend((event.start, event.end))
        if self._count > NOTED_ONE_BY_ONE:
            self._keys, self._is_named = {}, False
            self._nodes, self._ends = {label: [] for label in self._nodes}, {kind: [] for kind in self._ends}

    def change(self) -> Change | None:
        """Return the change, or None if an event could not be read."""
        relationships = [
            (kind, [{"label": label, "value": value} for end in ends for label, value in self._keys_at(end)])
            for kind, ends in self._ends.items()
        ]  # first, since an end may be unidentifiable
        return Change(not self._is_named, list(self._nodes.items()), relationships) if self._is_known else None

    def _add_node(self, node: _Node, *, is_whole: bool) -> None:
        before, after = node.state.get("before"), node.state.get("after")
        states = [state for state in (before, after) if state is not None]
        labels = {*node.labels, *(label for state in states for label in state.labels)}
        for label in labels & self._watches.nodes.keys():
            key = self._watches.nodes[label]
            shown = [*(state.properties for state in states), *node.keys.get(label, ())]
            values = [found[key] for found in shown if key in found]
            self._is_named &= bool(values) or is_whole
            if is_whole and (not states or key not in states[-1].properties):
                values.append("")
            self._nodes.setdefault(label, []).extend(values)
            self._keys.setdefault(node.element_id, []).extend((label, value) for value in values if value != "")
        if before is not None and after is not None and self._has_moved(before, after):
            # Its relationships, which no event mentions, now lead to it, or no longer do.
            self._is_named = False
            for kind in self._watches.relationships:
                self._ends.setdefault(kind, [])

    def _has_moved(self, before: _State, after: _State) -> bool:
        return bool(self._watches.nodes.keys() & (set(before.labels) ^ set(after.labels))) or any(
            before.properties.get(key) != after.properties.get(key) for key in self._watches.nodes.values()
        )

    def _keys_at(self, end: _Entity) -> list[tuple[str, Any]]:
        nodes = self._watches.nodes
        keys = [
            (label, found[key]) for label, key in nodes.items() for found in end.keys.get(label, ()) if key in found
        ]
        keys += self._keys.get(end.element_id, ())
        self._is_named &= nodes.keys() & end.labels <= {label for label, _ in keys}
        return keys


class CapturedChanges:
    """The changes of watched labels and types that a database captures.

    Args:
        triggers: the triggers of the database, as a user who may run ``db.cdc.query``.
        store, namespace: the place of the stored position.
    """

    def __init__(self, triggers: Triggers, watches: Watches, store: CacheLink, namespace: str) -> None:
        self._driver, self._database, self._watches = triggers.driver, triggers.database, watches
        self._store, self._key = store, feed_position_key(namespace)
        self._selectors: list[dict[str, Any]] = [
            *({"select": "n", "labels": [label]} for label in sorted(watches.nodes)),
            *({"select": "r", "type": kind} for kind in sorted(watches.relationships)),
        ]
        asked = msgspec.json.encode((sorted(watches.nodes.items()), self._selectors))
        self._watched = hashlib.blake2b(asked, digest_size=8).hexdigest().encode()

    def take(self) -> Changes:
        """Return the changes of whole transactions: `MAX_BATCH_EVENTS` events and the rest of the last transaction."""
        watched, _, position = (self._reply("GET", self._key) or b"").partition(b" ")
        try:
            if watched == self._watched:  # a consumer with other watches has skipped other changes
                return self._changes(position.decode())
        except Neo4jError as error:
            if not str(error.code).endswith(_LOST):
                raise
        log.warning(
            "the feed has no position for what is watched that the graph knows: all that depends on it is stale"
        )
        current, bookmarks = self._run(_current)
        return Changes(tuple(dict.fromkeys(tags_of(None, self._watches))), (current,), (), bookmarks)

    def acknowledge(self, changes: Changes) -> None:
        """Store the position of the last of these changes."""
        self._reply("SET", self._key, self._watched + b" " + changes.positions[-1].encode())

    def _changes(self, position: str) -> Changes:
        (taken, current, left), bookmarks = self._run(lambda tx: self._taken(tx, position))
        if not taken and current != position:  # otherwise the position would expire while nothing watched changes
            self.acknowledge(Changes((), (current,), (), ()))
        notes = [(one.position, one.at_ms, one.change()) for one in taken]
        return gathered(notes, self._watches, bookmarks, left=left)

    def _taken(self, tx: neo4j.ManagedTransaction, position: str) -> tuple[list[Transaction], str, int | None]:
        current = _current(tx)  # read first, so that the query sees everything up to it
        taken: list[Transaction] = []
        for count, row in enumerate(tx.run(_QUERY, position=position, selectors=self._selectors)):
            if not taken or taken[-1].number != row["txId"]:
                if count >= MAX_BATCH_EVENTS:
                    return taken, current, None
                taken.append(Transaction(row["txId"], self._watches))
            taken[-1].add(row)
        return taken, current, 0

    def _run(self, work: Callable[[neo4j.ManagedTransaction], T]) -> tuple[T, tuple[str, ...]]:
        """Run a transaction on the leader, because a member that lags may not know the position yet."""
        with self._driver.session(database=self._database) as session:
            return session.execute_write(work), tuple(session.last_bookmarks().raw_values)

    def _reply(self, *command: str | bytes) -> Any:
        (reply,) = self._store.execute_all([command])
        if isinstance(reply, Exception):
            raise reply
        return reply


def _current(tx: neo4j.ManagedTransaction) -> str:
    return str(tx.run(_CURRENT).single(strict=True)["id"])
