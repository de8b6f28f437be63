"""A reader that a timer interrupts a hundred times a second, as some profilers do.

``python -m tests.support.interrupted_reader CALL THREAD`` connects and prints "ready" (without connecting for
"connect"), makes its one call on request, and prints its outcome, its duration in seconds, and the allowed one.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from typing import Final

from api_client import CacheClient, CacheError
from tests.support.internals import link_of
from tests.support.timing import Measured
from tests.support.waiting import eventually_without

PERIOD_SECONDS: Final = 0.01
PROMISED_SECONDS: Final = 2.0
"""Of all calls together, at the test's timeout of 0.3 s: a connection may take two timeouts, and be made twice."""
QUERY: Final = "friends_of"
LARGE: Final = 30
"""The number of commands of a megabyte: more than all buffers between here and Redis hold."""

CALLS: Final[dict[str, Callable[[CacheClient], object]]] = {
    "read": lambda client: client.get(QUERY, {"id": 1}, timeout=0),
    "connect": lambda client: client.get(QUERY, {"id": 1}, timeout=0),
    "batch": lambda client: client.get_many([(QUERY, {"id": each}) for each in range(3)], timeout=0),
    "send": lambda client: link_of(client).execute_all([("GET", "x" * 1_000_000)] * LARGE, QUERY),
    "invalidate": lambda client: client.invalidate(QUERY, {"id": 1}),
    "wait": lambda client: client.get(QUERY, {"id": 1}, timeout=0.5),
}


def interrupted_call(name: str, client: CacheClient) -> str:
    """Make the call while the timer runs; return its outcome, and both durations."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    signal.setitimer(signal.ITIMER_REAL, PERIOD_SECONDS, PERIOD_SECONDS)
    with Measured() as took:
        try:
            came = CALLS[name](client)
        except CacheError as error:
            came = error
    outcome = came[0] if isinstance(came, list) else came
    return f"{type(outcome).__name__} {took.seconds:.3f} {took.allowed(PROMISED_SECONDS):.3f}"


def connect(client: CacheClient) -> None:
    """Make sure of a connection."""
    link_of(client).now_us()
    client.invalidate(QUERY, {"id": 1})


def main() -> None:
    """Make one call."""
    name, thread_name = sys.argv[1:]
    results: list[str] = []
    signal.signal(signal.SIGALRM, lambda number, frame: None)
    # The client's threads don't receive the signal either, nor does this one unless it makes the call.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    client = CacheClient.from_env()
    if name != "connect":
        eventually_without((CacheError,), lambda: connect(client), "a connection")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    if thread_name == "main":
        results.append(interrupted_call(name, client))
    else:
        caller = threading.Thread(target=lambda: results.append(interrupted_call(name, client)))
        caller.start()
        caller.join()
    sys.stdout.write(results[0])


if __name__ == "__main__":
    main()
