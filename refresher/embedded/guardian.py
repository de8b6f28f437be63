"""Guardian: runs a program, and ends it with all its children once the process that started it is gone.

A parent that is killed cleans nothing up; this program does. It reads a pipe whose other end only the parent holds:
end of file means that the parent ended, in whatever way. Standard library only, started as
``python -I -S guardian.py ...``; `process.py` is its only caller, and both files are one protocol:

- arguments: the parent's pid, two file descriptors (lifeline to read, report to write), seconds of grace, a directory
  to remove when the parent is gone (or an empty string), then the program and its arguments. Never a secret.
- lifeline, lines from the parent: ``terminate SECONDS`` (SIGTERM to the program, SIGKILL to its group after SECONDS),
  or ``kill``.
- report, lines to the parent: ``started PID`` or ``failed REASON``, then ``exit CODE`` (negative: the signal) when the
  program and its whole process group are gone.

SIGTERM goes only to the program, which knows best how to end its children (a Celery pool child would die of it in
mid-task). The rest of its group gets SIGKILL once it has ended.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from typing import NoReturn

_LOOK_SECONDS = 1.0  # interval of checks of the parent's pid
_GROUP_GONE_SECONDS = 3.0  # time for a killed group to vanish
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def _prctl(option: int, value: int) -> None:
    """Call prctl on Linux; elsewhere only the lifeline works."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes  # not needed elsewhere, and takes a few milliseconds to load

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _become(argv: list[str], guardian_pid: int, errors: int) -> NoReturn:
    """Start a session of its own in the forked child, and then become the program."""
    try:
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == guardian_pid:  # otherwise the guardian was killed before the line above
            for number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)  # Python ignores them, and exec would pass that on
            os.execvp(argv[0], argv)  # noqa: S606 - no shell is the point
    except OSError as error:
        os.write(errors, f"{argv[0]}: {error.strerror}".encode())
    finally:
        os._exit(127)


def _spawn(argv: list[str]) -> tuple[int, str]:
    """Start the program; return its pid and, if it could not be run, the reason."""
    read_end, write_end = os.pipe()  # close-on-exec, so end of file means that exec succeeded
    guardian_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        _become(argv, guardian_pid, write_end)
    os.close(write_end)
    with open(read_end, "rb") as stream:  # noqa: PTH123 - a descriptor, not a path
        return pid, stream.read().decode(errors="replace")


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS: EPERM if only zombies are left
        os.killpg(group, signal.SIGKILL)


def _group_is_gone(group: int) -> bool:
    # A subreaper (Linux) has to reap the group's orphans, which count as members until then.
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return True
    return False


class _Guardian:
    """The loop between the parent's lifeline and the program's end."""

    def __init__(self, parent: int, lifeline: int, program: int, grace_seconds: float) -> None:
        self.parent, self.program = parent, program
        self.lifeline: int | None = lifeline
        self.grace_seconds = grace_seconds
        self.parent_is_gone = False
        self._kill_at: float | None = None
        self._unread = b""

    def run(self, wake: int) -> int:
        """Return the program's exit code once it has ended."""
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)  # any child, since a subreaper gets orphans too
            if pid == self.program:
                return os.waitstatus_to_exitcode(status)
            if pid:
                continue
            self._wait(wake)
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                _kill_group(self.program)

    def _wait(self, wake: int) -> None:
        left = _LOOK_SECONDS if self._kill_at is None else self._kill_at - time.monotonic()
        watched = [wake] if self.lifeline is None else [wake, self.lifeline]
        ready = select.select(watched, [], [], min(max(left, 0.01), _LOOK_SECONDS))[0]
        if wake in ready and any(number != signal.SIGCHLD for number in os.read(wake, 64)):
            self._terminate(self.grace_seconds)  # a signal has asked the guardian itself to end
        if self.lifeline in ready:
            self._read_lifeline(self.lifeline)
        # If a process forked from the parent holds a copy of the lifeline's other end, only the pid shows the end.
        if not self.parent_is_gone and os.getppid() != self.parent:
            self._lose_parent()

    def _read_lifeline(self, lifeline: int) -> None:
        data = os.read(lifeline, 4096)
        if not data:
            self._lose_parent()
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            word, _, seconds = line.partition(b" ")
            if word == b"kill":
                self._kill_at = time.monotonic()
            elif word == b"terminate":
                self._terminate(float(seconds))

    def _lose_parent(self) -> None:
        self.parent_is_gone, self.lifeline = True, None
        self._terminate(self.grace_seconds)

    def _terminate(self, within_seconds: float) -> None:
        kill_at = time.monotonic() + within_seconds
        if self._kill_at is None:
            os.kill(self.program, signal.SIGTERM)  # not reaped yet, so the pid is still its own
        self._kill_at = kill_at if self._kill_at is None else min(kill_at, self._kill_at)


def _wake_on_signals() -> int:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: None)
    return read_end


def _send(report: int, line: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # the parent is gone
        os.write(report, line.replace("\n", " ").encode() + b"\n")


def main(arguments: list[str]) -> int:
    """Guard the program in ``arguments`` (see above) until it ends."""
    parent, lifeline, report = (int(text) for text in arguments[:3])
    grace_seconds, remove_directory, argv = float(arguments[3]), arguments[4], arguments[5:]
    for descriptor in (lifeline, report):
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - takes no keywords
    wake = _wake_on_signals()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    program, problem = _spawn(argv)
    _send(report, f"failed {problem}" if problem else f"started {program}")
    guardian = _Guardian(parent, lifeline, program, grace_seconds)
    code = guardian.run(wake)
    _kill_group(program)
    give_up_at = time.monotonic() + _GROUP_GONE_SECONDS
    while not _group_is_gone(program) and time.monotonic() < give_up_at:
        time.sleep(0.005)
    if guardian.parent_is_gone and remove_directory:
        import shutil  # only needed here, where nobody else is left to do it

        shutil.rmtree(remove_directory, ignore_errors=True)
    _send(report, f"exit {code}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
