"""A query whose loads write, each in a transaction of its own, and so can meet in a deadlock."""

from __future__ import annotations

import os
from typing import Any, Final

import neo4j
import redis

from refresher import query
from tests.support.scripted_queries import CONTROL_URL

LOCK: Final = "MATCH (n:Lock {name: $name}) SET n.by = $key"


@query("locks_two", ttl="1h", concurrency=64, grace="1h")
def locks_two(tx: Any, key: str) -> str:
    """Lock the node of the key's first letter, wait at the gate of the key, and lock that of its second letter."""
    first, second = key
    with (
        redis.Redis.from_url(os.environ[CONTROL_URL], decode_responses=True) as control,
        neo4j.GraphDatabase.driver(
            os.environ["NEO4J_URI"], auth=(os.environ["NEO4J_USER"], os.environ["NEO4J_PASSWORD"])
        ) as driver,
        driver.session() as session,
        session.begin_transaction() as writing,
    ):
        writing.run(LOCK, name=first, key=key).consume()
        control.rpush(f"calls:{key}", os.getpid())
        control.blpop([f"gate:{key}"], timeout=60)
        writing.run(LOCK, name=second, key=key).consume()
        writing.commit()
    return key
