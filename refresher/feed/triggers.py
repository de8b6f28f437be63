"""The APOC trigger that notes changes, installed by an administrator of the graph."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final, LiteralString

import neo4j
from neo4j.exceptions import DriverError, Neo4jError

from refresher.errors import message_of
from refresher.feed.errors import FeedError
from refresher.feed.watches import Watches

NAME: Final = "refresher_feed"
NOTED_ONE_BY_ONE: Final = 1_000
"""Most nodes and relationships listed for one transaction; one that changes more is noted as a bulk change."""
VISIBLE_SECONDS: Final = 70.0
"""Time for a database to read its triggers, which it does every ``apoc.trigger.refresh``, by default a minute."""
POLL_SECONDS: Final = 0.1
INSTEAD: Final = 'or, in Enterprise Edition and Aura, enable CDC: ALTER DATABASE … SET OPTION txLogEnrichment "FULL"'
REMOVED_AT_ONCE: Final = 10_000

QUIET: Final[dict[str, Any]] = {"notifications_disabled_classifications": ["UNRECOGNIZED"]}
"""Options of a session, without warnings of an unknown label, which a graph without notes does not have yet."""
_GIVEN: Final = (
    "createdNodes", "deletedNodes", "createdRelationships", "deletedRelationships", "assignedLabels", "removedLabels",
    "assignedNodeProperties", "removedNodeProperties", "assignedRelationshipProperties",
    "removedRelationshipProperties",
)  # fmt: skip
_STATEMENT: Final = (
    f"CALL apoc.cypher.doIt($note, {{tx: {{{', '.join(f'{name}: ${name}' for name in _GIVEN)}}}, "
    "nodes: $nodes, types: $types, limit: $limit}) YIELD value RETURN count(value)"
)
"""Passes the change on in a map, since Neo4j compiles a statement anew for lists of 1, 10, 100, … as parameters.

For the whole trigger that took half a second each time, from a writer or from the consumer, whose deletions run it too.
"""
_HAS: Final = "SHOW PROCEDURES YIELD name WHERE name IN $names RETURN count(*) AS n"
_APOC: Final = ("apoc.trigger.install", "apoc.cypher.doIt")
_INSTALL: Final = "CALL apoc.trigger.install($database, $name, $statement, {phase: 'before'}, {params: $params})"
_DROP: Final = "CALL apoc.trigger.drop($database, $name)"
_LIST: Final = (
    "CALL apoc.trigger.list() YIELD name, query, params, paused WHERE name = $name RETURN query, params, paused"
)
_REMOVE: Final = "MATCH (c:RefresherChange) WITH c LIMIT $limit DELETE c RETURN count(*) AS n"
_COUNT: Final = "MATCH (c:RefresherChange) WITH count(c) AS n, min(c.at) AS oldest RETURN n, oldest, timestamp() AS now"
_REMEDIES: Final = (
    # A part of an error's code or text, in lower case, and its remedy.
    ("db.cdc.query", "GRANT EXECUTE and GRANT EXECUTE BOOSTED PROCEDURE db.cdc.query ON DBMS TO a role of the user"),
    ("not been enabled", "set apoc.trigger.enabled=true in the server's conf/apoc.conf, and restart it"),
    ("sandbox", "set dbms.security.procedures.unrestricted=apoc.* in neo4j.conf, and restart the server"),
    ("forbidden", "REFRESHER_FEED_USER and REFRESHER_FEED_PASSWORD name a user who may: an administrator"),
    ("databasenotfound", "NEO4J_DATABASE names the database; empty: the user's own"),
    ("unauthorized", "REFRESHER_FEED_USER and REFRESHER_FEED_PASSWORD name a user of the graph"),
)


@dataclass(frozen=True, slots=True)
class Installed:
    """The trigger in the graph; ``is_current`` if it is the one that this release installs."""

    watches: Watches
    is_current: bool
    is_paused: bool


@dataclass(frozen=True, slots=True)
class Backlog:
    """Unacknowledged notes: their number, and the age of the oldest in seconds, by the graph's clock."""

    notes: int
    oldest_seconds: float


class Triggers:
    """The trigger of one database.

    Args:
        driver: the driver of a user with the privileges.
        database: the database; None for the user's home database.
    """

    def __init__(self, driver: neo4j.Driver, database: str | None) -> None:
        self.driver: neo4j.Driver = driver
        self.database: str | None = database

    def install(self, watches: Watches) -> None:
        """Install the trigger or replace an older one; return once the database runs it.

        Raises:
            FeedError: APOC or a privilege is missing, nothing is watched, or the trigger was not activated in time.
        """
        if not watches.nodes and not watches.relationships:
            raise FeedError('nothing is watched: say watch("Person", key="id") in a module of REFRESHER_QUERIES')
        if not self.has(*_APOC):
            raise FeedError(
                f"{self._product()} lacks {' or '.join(_APOC)}: the feed needs Neo4j with apoc-core of its version in "
                f"the folder plugins, and apoc.trigger.enabled=true in conf/apoc.conf; then restart it; {INSTEAD}"
            )
        self._administer(_INSTALL, statement=_STATEMENT, params=_params(watches))
        self._wait(lambda: runs(self.installed(), watches), "activated")

    def check(self, watches: Watches) -> None:
        """Check that the database runs the trigger with ``watches``, from which consumer and queries make tags.

        Raises:
            FeedError: the trigger is not installed, or is a different one.
        """
        if not _is_same(self.check_runs(), watches):
            raise FeedError(
                "the trigger is not what REFRESHER_QUERIES and this release require: refresher feed install"
            )

    def check_runs(self) -> Installed:
        """Return the trigger, checked to run in the database, with any watches.

        Raises:
            FeedError: the trigger is not installed, or paused.
        """
        found = self.installed()
        if found is None:
            raise FeedError(f"the trigger is not installed: refresher feed install; {INSTEAD}")
        if found.is_paused:
            raise FeedError(
                "the trigger is paused: refresher feed install, or in the database system: "
                f"CALL apoc.trigger.start('{self._database()}', '{NAME}')"
            )
        return found

    def uninstall(self) -> int:
        """Remove the trigger and then all notes; return the number of notes.

        Raises:
            FeedError: a privilege is missing, or the database still ran the trigger after a while.
        """
        if self.installed() is not None:
            self._administer(_DROP)
            self._wait(lambda: self.installed() is None, "removed")
        count = 0
        while removed := self.read(_REMOVE, limit=REMOVED_AT_ONCE, access=neo4j.WRITE_ACCESS)[0]["n"]:
            count += removed
        return count

    def installed(self) -> Installed | None:
        """Return the trigger that the database runs, or None.

        Raises:
            FeedError: the graph can't be queried.
        """
        if not self.has(*_APOC):
            return None
        found = self.read(_LIST, name=NAME)
        if not found:
            return None
        params = found[0]["params"] or {}
        known = Watches(dict(params.get("nodes") or {}), set(params.get("types") or ()))
        is_current = found[0]["query"] == _STATEMENT and params == _params(known)
        return Installed(known, is_current, bool(found[0]["paused"]))

    def backlog(self) -> Backlog:
        """Return the unacknowledged notes' number and age.

        Raises:
            FeedError: the graph can't be queried.
        """
        (row,) = self.read(_COUNT)
        age_seconds = 0.0 if row["oldest"] is None else max(0.0, (row["now"] - row["oldest"]) / 1e3)
        return Backlog(row["n"], age_seconds)

    def has(self, *procedures: str) -> bool:
        """Return whether the server has all of these procedures and this user may see them.

        Raises:
            FeedError: the graph can't be queried.
        """
        return int(self.read(_HAS, names=procedures)[0]["n"]) == len(procedures)

    def _database(self) -> str:
        return self.database or str(self.read("CALL db.info() YIELD name RETURN name")[0]["name"])

    def _product(self) -> str:
        agent = self.driver.get_server_info().agent
        return agent.replace("/", " ")

    def _administer(self, cypher: LiteralString, **params: Any) -> None:
        database = self._database()
        try:
            with self.driver.session(database="system") as session:
                session.run(cypher, database=database, name=NAME, **params).consume()
        except (DriverError, Neo4jError, OSError) as error:
            raise _failed(error) from error

    def read(self, cypher: LiteralString, *, access: str = neo4j.READ_ACCESS, **params: Any) -> list[dict[str, Any]]:
        """Run a statement in the database and return its rows.

        Raises:
            FeedError: the statement was refused, or the graph can't be queried.
        """
        try:
            with self.driver.session(database=self.database, default_access_mode=access, **QUIET) as session:
                return session.run(cypher, **params).data()
        except (DriverError, Neo4jError, OSError) as error:
            raise _failed(error) from error

    def _wait(self, is_done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + VISIBLE_SECONDS
        while not is_done():
            if time.monotonic() >= deadline:
                raise FeedError(
                    f"the database has not {what} the trigger within {VISIBLE_SECONDS:g} s: apoc.trigger.refresh in "
                    "conf/apoc.conf is how often it looks, in milliseconds"
                )
            time.sleep(POLL_SECONDS)


def _note() -> str:
    return (files("refresher.feed") / "trigger.cypher").read_text(encoding="utf-8")


def _params(watches: Watches) -> dict[str, Any]:
    watched = {"nodes": watches.nodes, "types": sorted(watches.relationships)}
    return {**watched, "limit": NOTED_ONE_BY_ONE, "note": _note()}


def _is_same(found: Installed, watches: Watches) -> bool:
    return found.is_current and found.watches == watches


def runs(found: Installed | None, watches: Watches) -> bool:
    """Return whether the database runs the trigger that this release installs for ``watches``."""
    return found is not None and _is_same(found, watches) and not found.is_paused


def _failed(error: Exception) -> FeedError:
    code, text = (error.code, error.message) if isinstance(error, Neo4jError) else ("", message_of(error))
    known = f"{code} {text}".lower()
    remedy = next((remedy for words, remedy in _REMEDIES if words in known), "")
    return FeedError(f"the graph refuses: {(text or str(code)).splitlines()[0]}" + (f": {remedy}" if remedy else ""))
