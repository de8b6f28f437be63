"""Queries whose loads are scripted by a test: they fail as the driver does, hang, end their process, return too much.

One writes, each load in a transaction of its own: two of them can meet in a deadlock.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

import neo4j
from neo4j.exceptions import SessionExpired

from refresher import query
from tests.support.driver_values import server_error
from tests.support.scripted_queries import GATE_SECONDS, control_redis

HUGE_BYTES: Final = 100 << 20
LOCK: Final = "MATCH (n:Lock {name: $name}) SET n.by = $key"


def _raise(error: Exception) -> None:
    raise error


def _hang_deaf() -> None:
    # Neither the soft limit's signal arrives, nor the first of the hard one: only SIGKILL is left.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGTERM})
    threading.Event().wait()


MISDEEDS: Final[dict[str, Callable[[], Any]]] = {
    "exits": lambda: os._exit(1),
    "kills itself": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "calls sys.exit": lambda: sys.exit(3),
    "hangs": lambda: threading.Event().wait(),
    "hangs deaf": _hang_deaf,
    "huge": lambda: "x" * HUGE_BYTES,
    "deadlock": lambda: _raise(server_error("TransientError.Transaction.DeadlockDetected")),
    "not a leader": lambda: _raise(server_error("ClientError.Cluster.NotALeader")),
    "leader gone": lambda: _raise(SessionExpired("the leader has gone")),
}


@query("misbehaves", ttl="1h", slots=64, grace="1h")
def misbehaves(tx: Any, key: str) -> Any:
    """Query the graph, then do what ``does:<key>`` in the control's Redis says, as long as it is set."""
    tx.run("RETURN 1").consume()
    with control_redis() as control:
        # Read before the call is recorded: the test that waits for the call may change it at once.
        misdeed = control.get(f"does:{key}")
        number = control.rpush(f"calls:{key}", os.getpid())
    if misdeed is not None:
        done = MISDEEDS[str(misdeed)]()
        if done is not None:
            return done
    return {"key": key, "load": number}


@query("asks_twice", ttl="1h", slots=64, grace="1h")
def asks_twice(tx: Any, key: str) -> list[Any]:
    """Query the graph, wait for the test at the gate of the key, and query it once more."""
    tx.run("RETURN 1").consume()
    with control_redis() as control:
        number = control.rpush(f"calls:{key}", os.getpid())
        control.blpop([f"gate:{key}"], timeout=GATE_SECONDS)
    row = tx.run("RETURN $number AS load", number=number).single()
    return list(row)


@query("locks_two", ttl="1h", slots=64, grace="1h")
def locks_two(tx: Any, key: str) -> str:
    """Lock the node of the key's first letter, wait at the gate of the key, and lock that of its second letter."""
    first, second = key
    with (
        control_redis() as control,
        neo4j.GraphDatabase.driver(
            os.environ["NEO4J_URI"], auth=(os.environ["NEO4J_USER"], os.environ["NEO4J_PASSWORD"])
        ) as driver,
        driver.session() as session,
        session.begin_transaction() as writing,
    ):
        writing.run(LOCK, name=first, key=key).consume()
        control.rpush(f"calls:{key}", os.getpid())
        control.blpop([f"gate:{key}"], timeout=GATE_SECONDS)
        writing.run(LOCK, name=second, key=key).consume()
        writing.commit()
    return key
