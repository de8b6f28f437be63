"""What the main process of a pool that forks counts: told to OpenTelemetry by a process beside it.

The main process forks for as long as it lives, to replace what has ended. An SDK in it would go into each of those:
its threads would not, its numbers would be told twice, and gRPC does not work on the two sides of a fork. So it writes
what it counts, a line an event, to a process that was started anew, which has an SDK as the others do. That process
begins with the first event, for most workers never have one, and ends with the pipe.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from typing import BinaryIO, Final

from refresher import otel_sdk
from refresher.events import WorkerEvents

log: Final = logging.getLogger(__name__)

# Written at once or not at all (PIPE_BUF), from whatever thread.
MOST_LINE_BYTES: Final = 4_096


class RelayedEvents(WorkerEvents):
    """Tells what happens in a main process: messages that it drops, and the ends of runs whose process was lost."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = False

    def message_dropped(self, *, reason: str) -> None:
        """Relay a message that was dropped unread."""
        self._tell("message_dropped", reason=reason)

    def retried(self, query: str, *, kind: str, attempt: int, pause_seconds: float) -> None:
        """Relay a failed attempt that will be repeated."""
        self._tell("retried", query=query, kind=kind, attempt=attempt, pause_seconds=pause_seconds)

    def failed(self, query: str, *, kind: str, attempts: int) -> None:
        """Relay a refresh that was given up."""
        self._tell("failed", query=query, kind=kind, attempts=attempts)

    def rejected(self, query: str, *, why: str) -> None:
        """Relay a write that was refused."""
        self._tell("rejected", query=query, why=why)

    def close(self) -> None:
        """Have the process send what it has, and end; one that takes too long is killed."""
        with self._lock:
            process, self._process, self._is_over = self._process, None, True
        if process is None:
            return
        _input_of(process).close()
        try:
            process.wait(otel_sdk.FLUSH_SECONDS + 1)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def forget(self) -> None:
        """In a process that was forked: let go of the pipe, which would not end with the main process otherwise."""
        process, self._process, self._is_over = self._process, None, True
        if process is not None:
            _input_of(process).close()
            process.returncode = 0  # of its parent: nothing to wait for, here

    def _tell(self, event: str, **fields: str | float) -> None:
        line = json.dumps([event, fields]).encode() + b"\n"
        with self._lock:
            if self._is_over:
                return
            try:
                self._process = self._process or _started()
                # None where the pipe is full. Nobody waits for it: this is the loop that takes the messages.
                if len(line) <= MOST_LINE_BYTES and _input_of(self._process).write(line) is not None:
                    return
                log.warning("OpenTelemetry is not told of one event: %s", event)
            except OSError as error:
                self._is_over = True
                log.error("OpenTelemetry is told of no more events of the main process: %s", error)


def _started() -> subprocess.Popen[bytes]:
    # In a session of its own, for it ends after this process does: what ends that one's group leaves it.
    process = subprocess.Popen(
        [sys.executable, "-m", "refresher.otel_relay"], stdin=subprocess.PIPE, bufsize=0, start_new_session=True
    )
    os.set_blocking(_input_of(process).fileno(), False)
    return process


def _input_of(process: subprocess.Popen[bytes]) -> BinaryIO:
    assert process.stdin is not None  # noqa: S101 - it was started with one
    return process.stdin  # type: ignore[return-value]


def relay(lines: BinaryIO) -> None:
    """Tell OpenTelemetry each event, until there are no more, and send what is left.

    Raises:
        ModuleNotFoundError: OpenTelemetry is not installed.
    """
    otel_sdk.set_up()
    from refresher.otel import OTelWorkerEvents

    events = OTelWorkerEvents()
    for line in lines:
        event, fields = json.loads(line)
        getattr(events, event)(**fields)
    otel_sdk.send_what_is_left()


def main() -> None:
    """Run in the process beside a main process. It ends when that has closed the pipe, however it did."""
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.SIG_IGN)
    try:
        relay(sys.stdin.buffer)
    except ModuleNotFoundError as error:
        raise SystemExit(f"CACHE_OTEL is on, but {error.name} is missing: {otel_sdk.INSTALL}") from None
    sys.stderr.flush()
    sys.stdout.flush()
    # Now: an SDK's own ends at exit would wait for a collector that hangs.
    os._exit(0)


if __name__ == "__main__":
    main()
