# ruff: noqa: E402 - hooks are registered at import
"""A process that is forked without Python's hooks, as a C server does it, and goes on in both.

The interpreter's own lock is made good in the child, which a bare fork() leaves to chance; no hook of a module runs.

``python -m tests.support.forking_reader KIND`` does what is of that kind once, forks, and does it in both processes at
one time, a few times. It prints one line for each process: its name, and "good" or what it met instead.
"""

from __future__ import annotations

import os

os.register_at_fork = lambda **_: None

import asyncio
import faulthandler
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, TypeAlias

from api_client import AsyncCacheClient, CacheClient, ReaderSettings
from api_client.local.tier import LocalTier
from api_client.local.tracking import TrackingLink
from api_client.transport.connection_maker import connection_maker
from api_client.transport.pool import Connections
from api_client.transport.sockets import watchdog
from api_client.transport.wire import pack

WITHIN_SECONDS: Final = 10.0
REPEATS: Final = 5

Act: TypeAlias = Callable[[str], object]
"""Is given the process's name, and returns it where all is well."""


def _within(condition: Callable[[], object]) -> bool:
    deadline = time.monotonic() + WITHIN_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def sync_reads(_: str) -> tuple[Act, AbstractContextManager[Any]]:
    """Read by a `CacheClient`."""
    return CacheClient.from_env().get, nullcontext()


def async_reads(_: str) -> tuple[Act, AbstractContextManager[Any]]:
    """Read by an `AsyncCacheClient`, on an event loop for each process: asyncio's outlive no fork."""
    client, loops = AsyncCacheClient.from_env(), dict[int, asyncio.AbstractEventLoop]()

    def read(query: str) -> object:
        loop = loops.get(os.getpid()) or loops.setdefault(os.getpid(), asyncio.new_event_loop())
        return loop.run_until_complete(client.get(query))

    return read, nullcontext()


def connections(url: str) -> tuple[Act, AbstractContextManager[Any]]:
    """Ask Redis which connection this is: for one process always the same, and no other's."""
    maker = connection_maker(url, timeout_seconds=WITHIN_SECONDS)
    pool = Connections(maker, timeout_seconds=WITHIN_SECONDS, reply_seconds=WITHIN_SECONDS)
    numbers: dict[str, int] = {}

    def ask(name: str) -> object:
        number = pool.ask(pack("CLIENT", "ID"))
        is_same = numbers.setdefault(name, number) == number
        is_own = len(set(numbers.values())) == len(numbers)
        return name if is_same and is_own else f"connection {number} of {numbers}"

    return ask, nullcontext()


def tiers(url: str) -> tuple[Act, AbstractContextManager[Any]]:
    """Turn an in-process tier on; at the fork another thread of the parent has its lock."""
    tier = LocalTier(max_entries=10, max_bytes=10_000, max_age_seconds=60.0)
    link = TrackingLink(url, timeout_seconds=WITHIN_SECONDS, tier=tier, namespace="test")

    def turn_on(name: str) -> object:
        link.start()
        is_on = _within(lambda: not tier._bypassed)
        is_heard = link._thread.is_running and link._stream is not None
        return name if is_on and is_heard and link._owner_pid == os.getpid() else "off"

    return turn_on, tier._lock


class _Thing:
    def __init__(self) -> None:
        self.was_looked_at = False

    def close_if_stalled(self) -> None:
        self.was_looked_at = True


def watches(_: str) -> tuple[Act, AbstractContextManager[Any]]:
    """Have a connection looked after."""

    def be_watched(name: str) -> object:
        thing = _Thing()
        watchdog().add(thing)
        return name if _within(lambda: thing.was_looked_at) else "nobody looks after it"

    return be_watched, nullcontext()


KINDS: Final[dict[str, Callable[[str], tuple[Act, AbstractContextManager[Any]]]]] = {
    "sync": sync_reads,
    "async": async_reads,
    "connections": connections,
    "tiers": tiers,
    "watches": watches,
}


def main() -> None:
    """Act, fork, act in both."""
    act, around_the_fork = KINDS[sys.argv[1]](ReaderSettings.from_env().redis_url)
    met = act("parent")
    assert met == "parent", met
    with around_the_fork:
        child = os.fork()
        if not child:
            end_in("child", act)
    end_in("parent", act, child)


def end_in(name: str, act: Act, child: int = 0) -> None:
    """Act a few times, say what came of it, and end."""
    met: object = name
    faulthandler.dump_traceback_later(4 * WITHIN_SECONDS, exit=True)  # where it hangs
    try:
        for _ in range(REPEATS):
            if (met := act(name)) != name:
                break
    except Exception as error:  # noqa: BLE001 - told in the line
        met = f"{type(error).__name__}: {error}"
    os.write(1, f"{name} {'good' if met == name else met}\n".encode())
    if child:
        os.waitpid(child, 0)
    os._exit(0)


if __name__ == "__main__":
    main()
