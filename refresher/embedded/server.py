"""Base of the embedded servers: a life cycle with bounded waits, and data in a directory that is removed with them.

A subclass defines the program (`_prepare`), and a check that it answers (`_answers`). Every server listens on the
loopback address only, with a random password.
"""

from __future__ import annotations

import secrets
import shutil
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from refresher.embedded.directories import new_directory
from refresher.embedded.errors import ServerDidNotStart
from refresher.embedded.ports import LOOPBACK, free_ports, port_is_free
from refresher.embedded.process import GuardedProcess

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_POLL_SECONDS = 0.02


class EmbeddedServer(ABC):
    """A server process, made by the subclass's ``start``; as a context manager it stops at the end."""

    title: ClassVar[str]
    port_count: ClassVar[int] = 1
    host: ClassVar[str] = LOOPBACK
    # A line of the log that means a failed start, if the process then stays.
    gives_up_with: ClassVar[str | None] = None

    def __init__(self, start_seconds: float) -> None:
        self.password: str = secrets.token_hex(24)
        self.start_seconds: float = start_seconds
        self.directory: Path = new_directory("refresher-")
        self._runs = 0
        self.ports: list[int] = []
        self._process: GuardedProcess | None = None

    @abstractmethod
    def _prepare(self) -> tuple[Sequence[str], Mapping[str, str] | None]:
        """Write the needed files into `directory`; return argv (no secrets) and environment (None: this process's)."""

    @abstractmethod
    def _answers(self) -> bool:
        """Return whether it answers a request with the password, within about a second."""

    @property
    def pid(self) -> int:
        """The server's process id, even after its end."""
        return 0 if self._process is None else self._process.pid

    @property
    def is_running(self) -> bool:
        """True while its process runs."""
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server for good, gracefully if possible, and remove its data. May be repeated."""
        if self._process is not None:
            self._process.terminate()
        shutil.rmtree(self.directory, ignore_errors=True)

    def tail_of_log(self, lines: int = 20) -> str:
        """Return the last lines of output of its current or last run."""
        return "" if self._process is None else self._process.tail_of_log(lines)

    def kill(self) -> None:
        """SIGKILL the server, and wait until it is gone. Data on disk stays."""
        if self._process is not None:
            self._process.kill()

    def _launch_or_clean_up(self) -> None:
        """Make its directory and start it for the first time; leave nothing behind if that fails."""
        try:
            self.directory.mkdir(mode=0o700)
            self._launch()
        except BaseException:
            self.stop()
            raise

    def _launch(self) -> None:
        """Run it and wait until it answers; the first start may move to other ports, later ones keep theirs."""
        first_start = not self.ports
        deadline = time.monotonic() + self.start_seconds
        while True:
            if first_start:
                self.ports = free_ports(self.port_count)
            argv, env = self._prepare()
            self._runs += 1
            log_file = self.directory / f"run-{self._runs}.log"
            self._process = GuardedProcess.start(
                argv, log_file=log_file, env=env, cwd=self.directory, remove_when_orphaned=self.directory
            )
            problem = self._wait_until_ready(self._process, deadline)
            if not problem:
                return
            self._process.kill()
            # Only a port taken between choosing and binding it is worth another attempt.
            if time.monotonic() >= deadline or all(map(port_is_free, self.ports)):
                raise ServerDidNotStart(self.title, problem, self.tail_of_log())

    def _wait_until_ready(self, process: GuardedProcess, deadline: float) -> str:
        """Return the problem, or an empty string."""
        while True:
            # In this order, since an answer counts only from this process while it runs, not from another on that port.
            answers = self._answers()
            code = process.wait(0.0 if answers else _POLL_SECONDS)
            if code is not None:
                return f"its process ended with code {code}"
            if answers:
                return ""
            if self.gives_up_with is not None and self.gives_up_with in process.tail_of_log():
                return "it gave up"
            if time.monotonic() >= deadline:
                return f"it did not answer within {self.start_seconds:g} s"


class BoltServer(EmbeddedServer):
    """A server of a graph, whose Bolt port is its last one."""

    user: ClassVar[str]
    database: ClassVar[str]

    @property
    def bolt_uri(self) -> str:
        """Address for the neo4j driver, which never changes. Sign in with `user` and `password`."""
        return f"bolt://{self.host}:{self.ports[-1]}"

    @property
    def environ(self) -> dict[str, str]:
        """Variables of a worker's environment for this graph, including the password."""
        return {
            "NEO4J_URI": self.bolt_uri,
            "NEO4J_USER": self.user,
            "NEO4J_PASSWORD": self.password,
            "NEO4J_DATABASE": self.database,
        }
