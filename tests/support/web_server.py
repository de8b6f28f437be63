"""An example application under its real server, started by the command line that the example itself shows."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import httpx

from refresher.embedded import GuardedProcess, free_port
from tests.support.waiting import MAX_WAIT_SECONDS, eventually

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
# A line of a server's own log that a healthy run does not have.
TROUBLE = re.compile(r"error|warn|critical|exception|traceback", re.IGNORECASE)
# Each server's options for its address, and for its patience with processes and requests that stand still.
OPTIONS = {
    "gunicorn": "--bind 127.0.0.1:{port} --timeout 0",
    "uvicorn": "--host 127.0.0.1 --port {port} --timeout-worker-healthcheck {seconds:.0f}",
    "python": "127.0.0.1:{port}",
    "uwsgi": "--http-socket 127.0.0.1:{port} --socket-timeout {seconds:.0f}",
}


class WebServer:
    """A running server; made by `start`, stopped by the test or at its end."""

    def __init__(self, process: GuardedProcess, port: int) -> None:
        self.process = process
        # No environment's proxy: the server is on this machine.
        # No connection is kept: a stopped process must not be queried on one.
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{port}", timeout=MAX_WAIT_SECONDS, trust_env=False,
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
                *args, *shlex.split(OPTIONS[program].format(port=port, seconds=MAX_WAIT_SECONDS)), *extra,
            ],
            env={**env, "PYTHONUNBUFFERED": "1"},
            cwd=cwd,
            log_file=log_file,
        )  # fmt: skip
        server = cls(process, port)
        eventually(server._answers, f"{command} answers")
        return server

    def friends(self, person_id: int) -> list[str]:
        """Request a person's friends, by the route that all the examples have."""
        reply = self.http.get(f"/people/{person_id}/friends")
        assert reply.status_code == 200, reply.text
        return [friend["name"] for friend in reply.json()]

    def report_write(self, person_id: int) -> None:
        """Notify the application of a write to the graph."""
        assert self.http.post(f"/people/{person_id}/friends/changed").status_code == 204

    def stop(self, by: signal.Signals = signal.SIGTERM) -> int | None:
        """Terminate it as a supervisor would; return its exit code, None if it did not end."""
        self.http.close()
        os.kill(self.process.pid, by)
        return self.process.wait(MAX_WAIT_SECONDS)

    def trouble(self) -> list[str]:
        """Return the lines of its log that report a problem."""
        return [line for line in self.process.log_file.read_text().splitlines() if TROUBLE.search(line)]

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.process.tail_of_log()
        try:
            return self.http.get("/").status_code == 404
        except httpx.TransportError:
            return False


def commands_of(example: str) -> list[str]:
    """Return the command lines in an example's docstring."""
    docstring = (EXAMPLES / example).read_text().split('"""')[1]
    return re.findall(r"^ {4}(\S.*)$", docstring, re.MULTILINE)
