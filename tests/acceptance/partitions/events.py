"""Events of a history: each process on a host writes its own to ``<dir>/<host>-<role>-<n>.jsonl``, a line of JSON each.

Every event has ``kind``, ``host``, ``process``, and ``start`` and ``end`` in seconds of the machine's monotonic clock.

==========  ========================================================================================================
read        ``key``, ``token``, ``state`` (fresh, stale, miss), ``versions`` of the graph's nodes in the value, by name;
            or ``error``. ``allowed_seconds``: for how long an in-process tier may serve what was invalidated
write       ``versions`` of the nodes after a transaction, by name; ``ok``: false where its outcome is not known
invalidate  ``key`` or ``tag``, ``versions`` of the nodes that it is for, ``hard``, ``ok``: it was acknowledged;
            of a key also ``generation``, ``replicas`` (how many were asked for) and ``replicated``: so many had it
kept        ``tag``, ``versions``, ``hard``: an invalidation that a worker finishes if its caller dies
load        ``key``, ``versions``, or ``error``
acquire     ``key``, ``token``
commit      ``key``, ``token``, ``status`` (a `CommitStatus` in lower case), or ``error``: it may have been done
fault       ``name``, ``hosts``: those that it cuts off or stops
heal        all faults before it have ended
quiet       all is at rest; ``left``: the Redis keys that should not be there any more
==========  ========================================================================================================
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any, TypeAlias

Event: TypeAlias = dict[str, Any]


class Log:
    """The events of one process. Thread-safe; each is written at once."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()

    def write(self, kind: str, start: float | None = None, **more: Any) -> None:
        """Write an event that began at ``start`` (monotonic, s; default: now) and ends now."""
        end, process = time.monotonic(), self._path.stem
        host = process.rsplit("-", 2)[0]
        about = {"kind": kind, "host": host, "process": process, "start": start or end, "end": end}
        with self._lock, self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(about | more) + "\n")


def events_in(folder: Path) -> list[Event]:
    """Return the events of all files, by their begins; a killed process may have left half a line."""
    lines = [line for path in folder.glob("*.jsonl") for line in path.read_text("utf-8").splitlines(keepends=True)]
    return sorted((json.loads(line) for line in lines if line.endswith("\n")), key=lambda event: event["start"])
