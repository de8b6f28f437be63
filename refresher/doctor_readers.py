"""What `refresher doctor` finds of readers: those whose connections the cache has now, by the names of these."""

from __future__ import annotations

from collections import Counter

import redis
from redis.exceptions import NoPermissionError

from api_client.connection_names import READER, NamedConnection, read_name
from refresher.findings import Finding, Level
from refresher.rights import forbidden
from refresher.status_keys import nodes_of


def readers(client: redis.Redis) -> Finding:
    """Say how many processes of readers are connected, and of which releases."""
    try:
        names = {name for node in nodes_of(client) for one in node.client_list() if (name := _name_of(one)) is not None}
    except NoPermissionError as error:
        return forbidden("readers", error)
    if not names:
        return Finding(
            "readers", Level.WARNING, "none is connected to this cache",
            "an application connects at its first read: does one run? Try its CACHE_REDIS_URL with --as-reader",
        )  # fmt: skip
    releases = Counter(name.version for name in names)
    said = ", ".join(f"{count} of {version}" for version, count in sorted(releases.items()))
    return Finding("readers", Level.OK, f"processes that are connected: {said}")


def _name_of(connection: dict[str, str]) -> NamedConnection | None:
    name = read_name(connection.get("name", ""))
    return name if name is not None and name.who == READER else None
