"""An example application under its real server, started by the command line that the example itself shows."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import httpx
import psutil

from refresher.embedded import GuardedProcess, free_port
from tests.support.processes import is_gone
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
# A line of a server's own log that a healthy run has not.
TROUBLE = re.compile(r"error|warn|critical|exception|traceback", re.IGNORECASE)
# Where each server is told the address, and gunicorn to tell which process has answered.
ADDRESS = {
    "gunicorn": "--bind 127.0.0.1:{port} --access-logfile - --access-logformat 'answered by %(p)s'",
    "uvicorn": "--host 127.0.0.1 --port {port}",
    "python": "127.0.0.1:{port}",
    "uwsgi": "--http-socket 127.0.0.1:{port}",
}


class WebServer:
    """A running server; made by `start`, stopped by the test or at its end."""

    def __init__(self, process: GuardedProcess, port: int) -> None:
        self.process = process
        # No environment's proxy: the server is on this machine.
        # No connection is kept: a process that is stopped must not be asked on one.
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False,
            limits=httpx.Limits(max_keepalive_connections=0),
        )  # fmt: skip

    @classmethod
    def start(cls, command: str, env: Mapping[str, str], log_file: Path, *extra: str, cwd: Path = EXAMPLES) -> Self:
        """Start the server by ``command``, as a newcomer would in the folder of the examples, or in another one."""
        program, *args = shlex.split(command)
        port = free_port()
        process = GuardedProcess.start(
            [
                sys.executable if program == "python" else str(Path(sys.executable).with_name(program)),
                *args, *shlex.split(ADDRESS[program].format(port=port)), *extra,
            ],
            env={**env, "PYTHONUNBUFFERED": "1"},
            cwd=cwd,
            log_file=log_file,
        )  # fmt: skip
        server = cls(process, port)
        eventually(server._answers, f"{command} answers")
        return server

    def friends(self, person_id: int) -> list[str]:
        """Ask for a person's friends, by the route that all the examples have."""
        reply = self.http.get(f"/people/{person_id}/friends")
        assert reply.status_code == 200, reply.text
        return [friend["name"] for friend in reply.json()]

    def tell_changed(self, person_id: int) -> None:
        """Tell the application that the graph was written to."""
        assert self.http.post(f"/people/{person_id}/friends/changed").status_code == 204

    def children(self) -> set[int]:
        """The processes that the server has forked and that live."""
        return {child.pid for child in psutil.Process(self.process.pid).children() if not is_gone(child.pid)}

    @contextmanager
    def only(self, pid: int) -> Iterator[None]:
        """Let no other of the server's processes answer."""
        others = self.children() - {pid}
        for other in others:
            os.kill(other, signal.SIGSTOP)
        try:
            yield
        finally:
            for other in others:
                os.kill(other, signal.SIGCONT)

    def stop(self, by: signal.Signals = signal.SIGTERM) -> int | None:
        """Ask it to end, as a supervisor would; its exit code, None when it did not end."""
        self.http.close()
        os.kill(self.process.pid, by)
        return self.process.wait(MAX_WAIT_SECONDS)

    def trouble(self) -> list[str]:
        """The lines of its log that tell of something wrong."""
        return [line for line in self.process.log_file.read_text().splitlines() if TROUBLE.search(line)]

    def answered_by(self) -> list[int]:
        """Which process has given each answer, where gunicorn says so."""
        return [int(pid) for pid in re.findall(r"answered by <(\d+)>", self.process.log_file.read_text())]

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.process.tail_of_log()
        try:
            return self.http.get("/").status_code == 404
        except httpx.TransportError:
            return False


def commands_of(example: str) -> list[str]:
    """The command lines in an example's docstring."""
    docstring = (EXAMPLES / example).read_text().split('"""')[1]
    return re.findall(r"^ {4}(\S.*)$", docstring, re.MULTILINE)
