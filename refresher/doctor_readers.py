"""What `refresher doctor` finds of readers: those whose connections the cache has now, by the names of these."""

from __future__ import annotations

from collections import Counter
from typing import Final

import redis
from redis.exceptions import NoPermissionError, ResponseError

from api_client.connection_names import READER, read_name
from api_client.explain_text import duration
from api_client.redis_edge import reason
from refresher.findings import Finding, Level
from refresher.rights import forbidden
from refresher.status_keys import nodes_of

QUIET_SECONDS: Final = 10
"""Shorter silences are not worth a word."""


def readers(client: redis.Redis) -> Finding:
    """Say how many processes of readers are connected, and of which releases."""
    try:
        found = [one for node in nodes_of(client) for one in node.client_list()]
    except NoPermissionError as error:
        return forbidden("readers", error)
    except ResponseError as error:
        return Finding("readers", Level.WARNING, f"can't be counted: {reason(error)}", "allow CLIENT LIST")
    ours = [(process, int(one.get("idle", 0))) for one in found if (process := _process_of(one)) is not None]
    if not ours:
        return Finding(
            "readers", Level.WARNING, "none is connected to this cache",
            "an application connects at its first read: does one run? Try its CACHE_REDIS_URL with --as-reader",
        )  # fmt: skip
    releases = Counter(version for version, _, _ in {process for process, _ in ours})
    said = ", ".join(f"{count} of {version}" for version, count in sorted(releases.items()))
    quiet_seconds = min(idle_seconds for _, idle_seconds in ours)
    quiet = f"; none has asked for {duration(quiet_seconds)}" if quiet_seconds >= QUIET_SECONDS else ""
    return Finding("readers", Level.OK, f"processes that are connected: {said}{quiet}")


def _process_of(connection: dict[str, str]) -> tuple[str, str, str] | None:
    """Return version, process and host of a reader's connection: two containers may have the same names inside."""
    name = read_name(connection.get("name", ""))
    if name is None or name.who != READER:
        return None
    return name.version, name.process, connection.get("addr", "").rpartition(":")[0]
