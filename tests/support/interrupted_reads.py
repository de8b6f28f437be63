"""A process whose main thread reads while a timer's handler repeatedly raises at arbitrary moments.

``python -m tests.support.interrupted_reads COUNT SEED`` makes its clients from the environment, reads until COUNT
exceptions have been raised, and prints its observations as JSON. If a call does not return within `STUCK_SECONDS`, the
process ends with the stacks of all threads.

``python -m tests.support.interrupted_reads imports`` prints which modules the calls import.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from api_client import CacheClient, CacheError, ReaderSettings
from api_client.trigger import broker
from tests.support.waiting import MAX_WAIT_SECONDS

STUCK_SECONDS: Final = MAX_WAIT_SECONDS
OTHERS: Final = 3
KEYS: Final = 200
LATEST_SECONDS: Final = 0.0004
"""The latest interrupt. A hit takes a tenth of it, a wait all of it and more."""
QUERY: Final = "q"


class Interrupted(BaseException):
    """Raised by the handler."""


class InterruptedByTimer(Exception):
    """The other exception that the handler raises: ``except Exception`` catches it."""


class Timer:
    """Raises at a random moment of the next call, and sometimes once more during its clean-up."""

    def __init__(self, random_: random.Random) -> None:
        self._random = random_
        self._left = 0
        self.raised = 0
        signal.signal(signal.SIGALRM, self._raise)

    def _raise(self, *_: object) -> None:
        if self._left:
            self._left -= 1
            self.raised += 1
            raise self._random.choice((Interrupted, InterruptedByTimer))

    def during(self, call: Callable[[], object]) -> str:
        """Make a call; return the name of its outcome."""
        after = self._random.uniform(1e-6, LATEST_SECONDS)
        try:
            self._left = self._random.choice((1, 1, 1, 2))
            signal.setitimer(signal.ITIMER_REAL, after, self._random.uniform(1e-5, 1e-4))
            call()
            self._left = 0
        except (Interrupted, InterruptedByTimer):
            self._left = 0
            return "interrupted"
        except CacheError as error:
            self._left = 0
            return type(error).__name__
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return "returned"


class Others:
    """Threads that read the same keys, and are never interrupted."""

    def __init__(self, clients: list[CacheClient]) -> None:
        self._clients, self._ends = clients, False
        self.reads = [0] * OTHERS
        self.longest_seconds = [0.0] * OTHERS
        self._threads = [threading.Thread(target=self._read, args=(each,), daemon=True) for each in range(OTHERS)]
        for thread in self._threads:
            thread.start()

    def _read(self, number: int) -> None:
        random_ = random.Random(number)  # noqa: S311 - no secret
        while not self._ends:
            began = time.monotonic()
            _read(random_.choice(self._clients), random_)
            self.longest_seconds[number] = max(self.longest_seconds[number], time.monotonic() - began)
            self.reads[number] += 1
            time.sleep(0.005)  # leave the interpreter to the main thread

    def end(self) -> bool:
        """End the threads; return whether all have ended."""
        self._ends = True
        for thread in self._threads:
            thread.join(STUCK_SECONDS)
        return not any(thread.is_alive() for thread in self._threads)


def _read(client: CacheClient, random_: random.Random) -> None:
    with contextlib.suppress(CacheError):
        _calls(client, random_)[random_.randrange(4)]()


def _calls(client: CacheClient, random_: random.Random) -> list[Callable[[], Any]]:
    number = random_.randrange(KEYS)
    return [
        lambda: client.get(QUERY, {"n": number}),  # some fresh, some stale
        lambda: client.get(QUERY, {"n": number}),
        lambda: client.get("missing", {"n": number % 5}, timeout=0.002),
        lambda: client.get_many([(QUERY, {"n": each}) for each in range(number, number + 3)], timeout=0.002),
        lambda: client.get(QUERY, {"n": number}, fresh=True, timeout=0.002),
        lambda: client.refresh(QUERY, {"n": number}),
        lambda: client.flush(0.001),
        lambda: client.invalidate("missing", {"n": number}),
    ]


class ImportRecorder:
    """Records the modules that the main thread imports. Goes first into ``sys.meta_path``, and finds nothing."""

    def __init__(self) -> None:
        self.modules: list[str] = []

    def find_spec(self, name: str, *_: object) -> None:
        """Record a module that is imported for the first time."""
        if threading.current_thread() is threading.main_thread():
            self.modules.append(name)


def imports() -> None:
    """Make each call once, with and without the in-process tier, and print their imports as JSON."""
    settings, recorder = ReaderSettings.from_env(), ImportRecorder()
    for each in (settings, _with_a_tier(settings)):
        with CacheClient(each) as client:
            sys.meta_path.insert(0, recorder)
            for call in _calls(client, random.Random(1)):  # noqa: S311 - no secret
                with contextlib.suppress(CacheError):
                    call()
            sys.meta_path.remove(recorder)
    sys.stdout.write(json.dumps(recorder.modules) + "\n")


def main() -> None:
    """Read until the given number of exceptions has been raised."""
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    faulthandler.enable()
    sys.setswitchinterval(1e-4)
    sys.unraisablehook = lambda _: None  # one that is raised in a destructor
    random_ = random.Random(seed)  # noqa: S311 - no secret
    broker.TIMEOUT_SECONDS = MAX_WAIT_SECONDS  # type: ignore[misc]
    settings = ReaderSettings.from_env()
    clients = [CacheClient(settings), CacheClient(_with_a_tier(settings))]
    others, timer, came = Others(clients), Timer(random_), Counter[str]()
    began = beat = time.monotonic()
    faulthandler.dump_traceback_later(STUCK_SECONDS, exit=True)
    longest_seconds = 0.0
    while timer.raised < count:
        call = random_.choice(_calls(random_.choice(clients), random_))
        call_began = time.monotonic()
        came[timer.during(call)] += 1
        now = time.monotonic()
        longest_seconds = max(longest_seconds, now - call_began)
        if now - beat > 10.0:
            beat = now
            print(f"{timer.raised} raised", file=sys.stderr, flush=True)  # noqa: T201 - how far a long run has come
            faulthandler.dump_traceback_later(STUCK_SECONDS, exit=True)
    faulthandler.dump_traceback_later(2 * STUCK_SECONDS, exit=True)
    report = {
        "raised": timer.raised,
        "seconds": round(time.monotonic() - began, 1),
        "came": dict(came),
        "longest_seconds": round(longest_seconds, 3),
        "others_have_ended": others.end(),
        "reads_of_others": others.reads,
        "others_longest_seconds": round(max(others.longest_seconds), 3),
        "flushed": [client.flush(MAX_WAIT_SECONDS) for client in clients],
    }
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()
    sys.stdin.readline()  # until the test has emptied the queues
    for client in clients:
        report = {}
        try:
            # It does not wait: a wait claims and publishes again as soon as its claim has lapsed.
            client.get("asked_at_the_end", {"tier": client is clients[1]}, timeout=0)
        except CacheError as error:
            report["missed"] = type(error).__name__
        report["published"] = client.flush(MAX_WAIT_SECONDS)
        sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()
    for client in clients:
        client.close()
    until = time.monotonic() + STUCK_SECONDS / 2
    while (left := [thread.name for thread in threading.enumerate()]) != ["MainThread"] and time.monotonic() < until:
        time.sleep(0.05)
    sys.stdout.write(json.dumps(left) + "\n")


def _with_a_tier(settings: ReaderSettings) -> ReaderSettings:
    return replace(settings, local_max_entries=100)


if __name__ == "__main__":
    imports() if sys.argv[1] == "imports" else main()
