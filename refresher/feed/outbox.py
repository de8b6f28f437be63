"""The trigger's notes as a source of changes.

Each transaction's note is a node of its own, found by its label and deleted on acknowledgement. No position is kept, so
a note that is committed late is found late, and none is missed.
"""

from __future__ import annotations

import time
from typing import Any, Final

import neo4j

from refresher.feed.changes import Changes, change_of, gathered
from refresher.feed.triggers import QUIET, Triggers
from refresher.feed.watches import Watches

MAX_BATCH_TRANSACTIONS: Final = 500
CHECK_SECONDS: Final = 5.0
"""Interval of checks, while there is no note, that the trigger still runs."""
_TAKE: Final = (
    "MATCH (c:RefresherChange) WITH c LIMIT $limit "
    "WITH collect([[elementId(c), c.id], c.at, c.changes]) AS notes "
    "RETURN notes, timestamp() AS now, COUNT { (:RefresherChange) } AS count"
)
"""One record for all notes, because the driver takes as long for a small record as the graph does."""
_ACKNOWLEDGE: Final = (
    "UNWIND $taken.positions AS position MATCH (c:RefresherChange) "
    "WHERE elementId(c) = position[0] AND (c.id = position[1] OR c.id IS NULL) DELETE c"
)
"""Matches a note by its own id too, since Neo4j may give its element id to a note that a consumer has not seen.

The parameter is a map, as for the trigger: with a list Neo4j compiles anew whenever it is ten times as long.
"""


class Outbox:
    """The notes in one database.

    Args:
        triggers: the triggers of the database, as a user who may read and delete nodes with the label
            ``RefresherChange``.
        watches: the watches with which the trigger was installed.
    """

    def __init__(self, triggers: Triggers, watches: Watches) -> None:
        self._triggers, self._watches = triggers, watches
        self._check_at = 0.0

    def take(self) -> Changes:
        """Return the changes of up to `MAX_BATCH_TRANSACTIONS` transactions.

        Raises:
            FeedError: there are no changes, and the trigger is no longer installed, or paused.
        """
        with self._session(default_access_mode=neo4j.READ_ACCESS) as session:
            row = session.execute_read(lambda tx: tx.run(_TAKE, limit=MAX_BATCH_TRANSACTIONS).single(strict=True))
            # Taken after the read, so that they cover each transaction that it has seen.
            bookmarks = tuple(session.last_bookmarks().raw_values)
        if not row["notes"] and time.monotonic() >= self._check_at:
            self._triggers.check_runs()
            self._check_at = time.monotonic() + CHECK_SECONDS
        notes = [(tuple(position), at, change_of(note)) for position, at, note in row["notes"]]
        left = max(0, row["count"] - len(notes))
        return gathered(notes, self._watches, bookmarks, left=left, now_ms=row["now"])

    def acknowledge(self, changes: Changes) -> None:
        """Delete the notes of these changes."""
        with self._session() as session:
            taken = {"positions": list(changes.positions)}
            session.execute_write(lambda tx: tx.run(_ACKNOWLEDGE, taken=taken).consume())

    def _session(self, **options: Any) -> neo4j.Session:
        return self._triggers.driver.session(database=self._triggers.database, **QUIET, **options)
