"""Staleness with the change feed, as a reader sees it after writes that only the feed knows of."""

from __future__ import annotations

import time
from contextlib import closing, suppress
from typing import Final

import neo4j
from neo4j.exceptions import DriverError, Neo4jError
from redis.exceptions import RedisError

from api_client import CacheClient, ReaderSettings
from api_client.transport.redis_py import connect
from refresher.checker.nodes import WATCH_LABEL, WATCH_QUERY, WATCHED
from refresher.checker.writer import WriterFailed
from refresher.feed.state import read_state

MAX_SECONDS: Final = 10.0
POLL_SECONDS: Final = 0.01


def is_fed(settings: ReaderSettings) -> bool:
    """Return whether the change feed watches the nodes of a watch, and somebody consumes it."""
    with suppress(RedisError), closing(connect(settings.redis_url, timeout_seconds=2.0)) as client:
        state = read_state(client, settings.namespace)
        return state is not None and bool(state.consumer) and WATCH_LABEL in state.watched
    return False


def seconds_until_read(driver: neo4j.Driver, database: str | None, client: CacheClient, name: str) -> float:
    """Write to a node; return the time from the commit until a reader gets the new value, at most `MAX_SECONDS`.

    Raises:
        CacheError: a read failed.
        WriterFailed: the graph could not be written to.
    """
    try:
        (record,) = driver.execute_query(WATCHED.increment_cypher, name=name, database_=database).records
    except (DriverError, Neo4jError) as error:
        raise WriterFailed(f"the writer failed: {error}") from error
    began = time.monotonic()
    while (past_seconds := time.monotonic() - began) < MAX_SECONDS:
        value = client.get(WATCH_QUERY, WATCHED.params(name))
        if value is not None and value["version"] >= record["version"]:
            break
        time.sleep(POLL_SECONDS)
    return past_seconds
