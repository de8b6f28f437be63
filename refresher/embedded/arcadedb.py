"""Embedded ArcadeDB, from the wheel ``arcadedb-embedded``: a graph for the demo, as a process that speaks Bolt.

The wheel brings its own Java and is never imported, since that would load a JVM into this process. The server is used
through the official neo4j driver.

It differs from Neo4j (as of 26.10): a transaction's own timeout, READ mode and bookmarks are accepted without effect.
`QUERY_SECONDS` bounds all queries alike.
"""

from __future__ import annotations

import base64
import http.client
import os
import socket
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from refresher.embedded.errors import ServerMissing
from refresher.embedded.server import BoltServer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_REMEDY = "run: pip install 'refresher[demo]'"
_ANSWER_SECONDS = 1.0
QUERY_SECONDS = 30.0
"""Time after which a query is ended, with the same code as on Neo4j (``…Transaction.TransactionTimedOut``)."""
_JAVA_OPTIONS = (
    "-Xmx512m",
    "--add-exports=java.management/sun.management=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent.atomic=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "-Djava.awt.headless=true",
    "-XX:-UsePerfData",  # otherwise a kill leaves a file in the system's temporary directory
)
_BOLT_MAGIC = bytes.fromhex("6060b017")
_BOLT_VERSIONS = bytes.fromhex("00000405 00000404 00000004 00000003")


def find_arcadedb() -> Path:
    """Return the directory of the package ``arcadedb_embedded``, without importing it.

    Raises:
        ServerMissing: the package is not installed, or lacks its own Java.
    """
    spec = find_spec("arcadedb_embedded")
    for folder in (spec and spec.submodule_search_locations) or []:
        package = Path(folder)
        if os.access(package / "jre/bin/java", os.X_OK) and (package / "jars").is_dir():
            return package
    raise ServerMissing("the package arcadedb-embedded with its Java", _REMEDY)


class ArcadeDbServer(BoltServer):
    """An ArcadeDB with one empty database, HTTP and Bolt on free ports of the loopback address."""

    title: ClassVar[str] = "ArcadeDB"
    port_count: ClassVar[int] = 2
    gives_up_with: ClassVar[str | None] = 'Exception in thread "main"'
    user: ClassVar[str] = "root"
    database: ClassVar[str] = "graph"

    def __init__(self, package: Path, start_seconds: float, java_options: Sequence[str]) -> None:
        super().__init__(start_seconds)
        self._package, self._java_options = package, java_options

    @classmethod
    def start(cls, *, start_seconds: float = 60.0, java_options: Sequence[str] = ()) -> Self:
        """Start a server, wait until HTTP and Bolt answer, and create its database.

        Args:
            start_seconds: the time allowed for all of that; usually it takes 2 s.
            java_options: further options for its Java.

        Raises:
            ServerMissing: the wheel is not installed.
            ServerDidNotStart: it ended or did not answer in time, or the database could not be made.
        """
        server = cls(find_arcadedb(), start_seconds, java_options)
        server._launch_or_clean_up()
        return server

    def _launch(self) -> None:
        super()._launch()
        # It contains the password, and has been read by now.
        self._arguments_file.unlink(missing_ok=True)

    def _prepare(self) -> tuple[Sequence[str], Mapping[str, str] | None]:
        http_port, bolt_port = self.ports
        settings = {
            "server.rootPath": self.directory,
            "server.rootPassword": self.password,
            "server.defaultDatabases": f"{self.database}[{self.user}]",
            "server.plugins": "Bolt:com.arcadedb.bolt.BoltProtocolPlugin",
            "server.httpIncomingHost": self.host,
            "server.httpIncomingPort": http_port,
            "bolt.host": self.host,
            "bolt.port": bolt_port,
            "bolt.defaultDatabase": self.database,
            "command.timeout": round(QUERY_SECONDS * 1000),
        }
        arguments = [
            *_JAVA_OPTIONS,
            *self._java_options,
            *(f"-Darcadedb.{name}={value}" for name, value in settings.items()),
            "-cp",
            str(self._package / "jars" / "*"),
            "com.arcadedb.server.ArcadeDBServer",
        ]
        # In Java's argument file, because everyone on this machine could read a password on the command line.
        self._arguments_file.touch(mode=0o600)
        self._arguments_file.write_text("".join(f"{quoted_argument(argument)}\n" for argument in arguments))
        return [str(self._package / "jre/bin/java"), f"@{self._arguments_file}"], None

    @property
    def _arguments_file(self) -> Path:
        return self.directory / "java.args"

    def _answers(self) -> bool:
        try:
            return b"true" in self._ask(f"/api/v1/exists/{self.database}") and self._speaks_bolt()
        except (OSError, http.client.HTTPException):
            return False

    def _speaks_bolt(self) -> bool:
        with socket.create_connection((self.host, self.ports[1]), _ANSWER_SECONDS) as connection:
            connection.sendall(_BOLT_MAGIC + _BOLT_VERSIONS)
            return len(connection.recv(4)) == len(_BOLT_MAGIC)

    def _ask(self, path: str) -> bytes:
        # Not with urllib, which would use the environment's proxy for a loopback address.
        credentials = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        with closing(http.client.HTTPConnection(self.host, self.ports[0], timeout=_ANSWER_SECONDS)) as connection:
            connection.request("GET", path, headers={"Authorization": f"Basic {credentials}"})
            return connection.getresponse().read()


def quoted_argument(argument: str) -> str:
    """Quote an argument as a line of Java's argument file."""
    escaped = argument.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
