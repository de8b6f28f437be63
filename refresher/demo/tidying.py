"""Leaves one's own servers as they were found: what the demo wrote goes, and nothing else does."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

from neo4j.exceptions import DriverError, Neo4jError

from api_client.config.broker import miss_queue, refresh_queue

if TYPE_CHECKING:
    import neo4j
    import redis

log: Final = logging.getLogger(__name__)

_BATCH: Final = 500
# A batch a transaction: all at once would be more than a small server's memory takes.
_REMOVE: Final = """
MATCH (p:Person) WHERE p.id >= $first AND p.id < $next AND p.version IS NOT NULL
DETACH DELETE p
"""


def remove_keys(client: redis.Redis, namespace: str) -> None:
    """Remove the keys of a namespace: entries, records, queues, and what the broker keeps of its messages.

    Args:
        client: of the server that is cache and broker.
        namespace: at least eight characters that nobody else's keys begin with.
    """
    for batch in _in_batches(client.scan_iter(match=f"{namespace}*", count=_BATCH)):
        client.unlink(*batch)
    queues = (miss_queue(namespace), refresh_queue(namespace))
    client.unlink(*(f"_kombu.{kind}.{queue}" for queue in queues for kind in ("binding", "binding_permanent")))
    # Messages that a killed worker held: kombu would put them into a queue again that nobody reads.
    for tag, message in client.hscan_iter("unacked"):
        if any(f'"{queue}"'.encode() in message for queue in queues):
            client.hdel("unacked", tag)
            client.zrem("unacked_index", tag)
    _forget_listeners(client, namespace.encode())


def _forget_listeners(client: redis.Redis, namespace: bytes) -> None:
    """Remove what kombu keeps of the demo's own listeners in sets that it shares with all others on this server.

    Flower's carries no name of ours; kombu itself forgets it after its deadline.
    """
    for key in ("_kombu.binding.celeryev", "_kombu.binding.celery.pidbox"):
        for bound in cast("set[bytes]", client.smembers(key)):
            if namespace in bound:
                client.srem(key, bound)
    for bound, _ in client.zscan_iter("_kombu.binding_deadlines"):
        if namespace in bound:
            client.zrem("_kombu.binding_deadlines", bound)


def _in_batches(keys: Iterator[Any]) -> Iterator[list[Any]]:
    while batch := list(islice(keys, _BATCH)):
        yield batch


def remove_graph(driver: neo4j.Driver, database: str | None, persons: int) -> None:
    """Remove the persons that the demo has loaded, whose ids count from 0, and their relationships."""
    try:
        with driver.session(database=database) as session:
            for first in range(0, persons, _BATCH):
                session.run(_REMOVE, first=first, next=first + _BATCH).consume()
    except (DriverError, Neo4jError) as error:
        log.error("the demo's persons could not all be removed from the graph: %s", error)
