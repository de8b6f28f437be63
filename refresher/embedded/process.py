"""A child process that can't outlive its parent: servers, Celery workers, Flower.

``GuardedProcess`` starts the program through `guardian.py`, which ends it and its whole process group when this process
ends, even by ``kill -9``. Linux and macOS. Thread-safe; a forked child must not use its parent's objects.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from refresher.embedded.errors import ServerDidNotStart

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_GUARDIAN = Path(__file__).with_name("guardian.py")
GUARDIAN_START_SECONDS = 15.0
_POLL_SECONDS = 0.05
GUARDIAN_MARGIN_SECONDS = 5.0  # time for the guardian to see the whole group gone
_TAIL_BYTES = 8192


class GuardedProcess:
    """A running program with its guardian. Made by `start`; as a context manager it terminates the program.

    ``pid`` is the id of the program and of its process group; ``log_file``, if any, contains its output.
    """

    def __init__(
        self, guardian: subprocess.Popen[bytes], lifeline: int, report: int, log_file: Path | None, name: str
    ) -> None:
        self.log_file: Path | None = log_file
        self.name: str = name
        self._guardian, self._lifeline, self._report = guardian, lifeline, report
        self._reading = threading.Lock()  # held during a wait
        self._writing = threading.Lock()  # never held for long, so that a wait does not hold up an order to end
        self._unread = b""
        self._returncode: int | None = None
        self.pid: int = 0

    @classmethod
    def start(
        cls,
        argv: Sequence[str],
        *,
        log_file: Path | None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        grace_seconds: float = 5.0,
        remove_when_orphaned: Path | None = None,
    ) -> Self:
        """Start ``argv`` and return once it runs, though it may not be ready yet.

        Args:
            argv: program and arguments, without secrets, as anyone on the machine can read them.
            log_file: the file to which its stdout and stderr are appended, made with mode 0600; None to share this
                process's.
            env: its whole environment; None for this process's.
            cwd: its working directory; None for this process's.
            grace_seconds: the time between SIGTERM and SIGKILL if this process ends without terminating it.
            remove_when_orphaned: a directory that the guardian removes in that case.

        Raises:
            ServerDidNotStart: there is no such program, or it can't be run.
        """
        lifeline_read, lifeline = os.pipe()
        report, report_write = os.pipe()
        log = None if log_file is None else os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        numbers = map(str, [os.getpid(), lifeline_read, report_write, grace_seconds])
        command = [sys.executable, "-I", "-S", str(_GUARDIAN), *numbers, str(remove_when_orphaned or ""), *argv]
        try:
            guardian = subprocess.Popen(  # noqa: S603 - an argv without a shell; its first words are ours
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=env,
                cwd=cwd,
                pass_fds=(lifeline_read, report_write),
                start_new_session=True,  # Ctrl-C in a terminal is the parent's to handle
            )
        except BaseException:
            os.close(lifeline)
            os.close(report)
            raise
        finally:
            for descriptor in (lifeline_read, report_write, log):
                if descriptor is not None:
                    os.close(descriptor)
        process = cls(guardian, lifeline, report, log_file, Path(argv[0]).name)
        process._wait_started()
        return process

    def _wait_started(self) -> None:
        word, _, rest = self._next_line(time.monotonic() + GUARDIAN_START_SECONDS).partition(" ")
        if word == "started":
            self.pid = int(rest)
            return
        self._guardian.kill()
        self._close(-signal.SIGKILL)
        raise ServerDidNotStart(self.name, rest or "its guardian process ended or hung", self.tail_of_log())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.terminate()

    @property
    def returncode(self) -> int | None:
        """The exit code as in subprocess: None while the program runs, negative for the signal that ended it."""
        return self.poll()

    def poll(self) -> int | None:
        """Return `returncode` without waiting."""
        return self.wait(0.0)

    def wait(self, timeout_seconds: float) -> int | None:
        """Wait until the program and its whole group are gone; return the exit code, or None if that took longer."""
        deadline = time.monotonic() + timeout_seconds
        if not self._reading.acquire(timeout=timeout_seconds):
            return self._returncode
        try:
            if self._returncode is None:
                word, _, code = self._next_line(deadline).partition(" ")
                if word == "exit":
                    self._close(int(code))
                elif word == "lost":  # the guardian was killed, and on Linux its child with it
                    self._kill_group()
                    self._close(-signal.SIGKILL)
            return self._returncode
        finally:
            self._reading.release()

    def wait_until(self, is_ready: Callable[[], bool], timeout_seconds: float) -> bool:
        """Wait until ``is_ready``; return False if the program ended first (see `returncode`) or time ran out."""
        deadline = time.monotonic() + timeout_seconds
        while not is_ready():
            if self.wait(_POLL_SECONDS) is not None or time.monotonic() >= deadline:
                return False
        return True

    def terminate(self, within_seconds: float = 10.0) -> int:
        """End it: SIGTERM to the program and, after ``within_seconds``, SIGKILL to its group; return `returncode`."""
        return self._end(f"terminate {within_seconds}\n", within_seconds)

    def kill(self) -> int:
        """SIGKILL the whole process group, and wait until it is gone; return `returncode`."""
        return self._end("kill\n", 0.0)

    def tail_of_log(self, lines: int = 20) -> str:
        """Return the last lines (at most 8 KiB) of its output, or "" if there is nothing to read."""
        if self.log_file is None:
            return ""
        try:
            with self.log_file.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
                return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""

    def _end(self, order: str, within_seconds: float) -> int:
        with self._writing:
            if self._returncode is None:
                with suppress(BrokenPipeError):  # the guardian has just ended, as `wait` will see
                    os.write(self._lifeline, order.encode())
        code = self.wait(within_seconds + GUARDIAN_MARGIN_SECONDS)
        if code is None:  # the guardian does not answer, perhaps stopped by a signal
            self._kill_group()
            self._guardian.kill()
            code = self.wait(GUARDIAN_MARGIN_SECONDS)
        return -signal.SIGKILL if code is None else code

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def _next_line(self, deadline: float) -> str:
        """Read the guardian's next line; return "" if none came in time, ``lost`` if none will come."""
        while b"\n" not in self._unread:
            poll = select.poll()  # not select(), which can't handle descriptors above 1023
            poll.register(self._report, select.POLLIN)
            if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                return ""
            data = os.read(self._report, 4096)
            if not data:
                return "lost"
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode(errors="replace")

    def _close(self, returncode: int) -> None:
        with self._writing:
            self._returncode = returncode
            os.close(self._lifeline)
        os.close(self._report)
        self._guardian.wait()
