"""A program that uses a reader, forks twice, and goes on to use it in all three processes at once.

Usage: ``python -m tests.support.forking_program FORK KIND``: FORK is ``os`` or ``c``, a fork in which no
module's hooks run, as in a server written in C; KIND is ``sync`` or ``async``. Each process writes a line
of JSON to the standard output: ``met`` lists the faults that it met. It reads the queries of `scripted_queries`.
"""

from __future__ import annotations

import os
import sys

if sys.argv[1:2] == ["c"]:
    os.register_at_fork = lambda **_: None  # no hook of a module runs; the interpreter's own lock is made good

import asyncio
import faulthandler
import json
import threading
import traceback
from typing import Any

from api_client import AsyncCacheClient, CacheClient
from tests.support.event_recorder import EventRecorder
from tests.support.patience import publish_patiently
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

QUERY = "long_lived"
CHILDREN = 2
READING_THREADS = 2


class Program:
    """One process of the program. The client is made once, in the parent; each process has its own event loop.

    No other program has its keys: ``how`` and ``kind`` are part of them.
    """

    def __init__(self, how: str, kind: str) -> None:
        self._name = f"{how}, {kind}"
        self._events = EventRecorder()
        self._client: Any = {"sync": CacheClient, "async": AsyncCacheClient}[kind].from_env(events=self._events)
        self._met: list[str] = []
        self.begin()

    def begin(self) -> None:
        """Begin in this process."""
        self._runner = asyncio.Runner()
        self._met.clear()
        self._events.recorded.clear()

    def uses(self, key: str) -> None:
        """Load a value, and refresh it after an invalidation, twice; each value must be its own key's."""
        assert self.load_of(key) == 1
        for load in (2, 3):
            self._done(self._client.invalidate(QUERY, self._params(key)))
            eventually(lambda load=load: self.load_of(key) == load, f"load {load} of {key}")  # type: ignore[misc]

    def load_of(self, key: str) -> int:
        """Read; return the number of the load that the value is from."""
        params = self._params(key)
        value = self._done(self._client.get(QUERY, params, timeout=MAX_WAIT_SECONDS))
        if value["key"] != params["key"]:
            self._met.append(f"the value of {key} is {value}")
        return int(value["load"])

    def reads(self, key: str, ends: threading.Event) -> None:
        """Read one key over and over, in a thread."""
        try:
            while not ends.wait(0.001):
                self.load_of(key)
        except Exception:  # noqa: BLE001 - reported to the test
            self._met.append(traceback.format_exc())

    def finish(self) -> None:
        """Publish the rest, close, and report."""
        if not self._done(self._client.flush(MAX_WAIT_SECONDS)):
            self._met.append("not flushed")
        self._met += [f"{name}: {why}" for name in ("failed", "dropped") for why in self._events[name]]
        self._done(self._client.close())
        os.write(1, (json.dumps({"met": self._met[:5]}) + "\n").encode())

    def _params(self, key: str) -> dict[str, str]:
        return {"key": f"{self._name}: {key}"}

    def _done(self, call: Any) -> Any:
        return self._runner.run(call) if asyncio.iscoroutine(call) else call


def main(how: str, kind: str) -> None:
    publish_patiently()
    program, ends = Program(how, kind), threading.Event()
    program.uses("parent")
    threads = [
        threading.Thread(target=program.reads, args=("parent", ends), daemon=True)
        for _ in range(READING_THREADS if kind == "sync" else 0)
    ]
    if how == "os":
        start(threads)
    children = []
    for number in range(CHILDREN):
        pid = os.fork()
        if pid == 0:
            in_child(program, number)
        children.append(pid)
    if how == "c":
        start(threads)
    program.uses("parent's other")
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    program.uses("parent's last")
    ends.set()
    for thread in threads:
        thread.join()
    program.finish()
    sys.exit(max(map(abs, codes)))


def start(threads: list[threading.Thread]) -> None:
    """Begin to read in the background."""
    for thread in threads:
        thread.start()


def in_child(program: Program, number: int) -> None:
    """Use the parent's client, and end without the parent's clean-up."""
    try:
        faulthandler.dump_traceback_later(2 * MAX_WAIT_SECONDS, exit=True)
        program.begin()
        program.uses(f"child {number}")
        program.finish()
    except BaseException:  # noqa: BLE001 - reported to the test
        os.write(1, (json.dumps({"met": [traceback.format_exc()]}) + "\n").encode())
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
