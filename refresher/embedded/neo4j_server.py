"""Embedded Neo4j Community, with or without APOC, whose jars come from Maven at the first start.

It needs a Java, on PATH or from ArcadeDB's wheel if that is new enough.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, Self

from neo4j import GraphDatabase
from neo4j.exceptions import DriverError, Neo4jError

from refresher.embedded.arcadedb import find_arcadedb
from refresher.embedded.errors import ServerMissing
from refresher.embedded.maven import LTS, NEWEST, Neo4jRelease, apoc_jars, neo4j_jars
from refresher.embedded.server import BoltServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_FACTORY_PASSWORD = "neo4j"  # noqa: S105 - replaced at once
_ANSWER_SECONDS = 1.0
_OPENED = ("nio", "io", "lang", "util.concurrent")


def find_java(release: Neo4jRelease) -> str:
    """Return the path of a Java for a release: the one on PATH, or the one in ArcadeDB's wheel.

    Raises:
        ServerMissing: there is none.
    """
    for java in _javas():
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603 - ours
        version = re.search(r'version "(\d+)', shown)
        if version is not None and int(version[1]) in release.java:
            return java
    allowed = " or ".join(map(str, release.java))
    raise ServerMissing(f"no Java for Neo4j {release.version}", f"install Java {allowed}")


def _javas() -> Iterator[str]:
    if java := shutil.which("java"):
        yield java
    with suppress(ServerMissing):
        yield str(find_arcadedb() / "jre/bin/java")


class Neo4jServer(BoltServer):
    """Neo4j with an empty database, Bolt only."""

    title: ClassVar[str] = "Neo4j"
    user: ClassVar[str] = "neo4j"
    database: ClassVar[str] = "neo4j"

    def __init__(self, release: Neo4jRelease, start_seconds: float, java_options: Sequence[str] = ()) -> None:
        super().__init__(start_seconds)
        self._release, self._java_options = release, java_options
        self._java, self._class_path = find_java(release), [str(neo4j_jars(release) / "*")]
        self._more_settings: dict[str, str] = {}

    @classmethod
    def start(
        cls, release: Neo4jRelease = NEWEST, *, start_seconds: float = 120.0, java_options: Sequence[str] = ()
    ) -> Self:
        """Start a server and wait until it answers a query with its new password.

        Args:
            release: the release to start.
            start_seconds: the time allowed for that; usually it takes 7 s once the jars are there.
            java_options: further options for its Java.

        Raises:
            ServerMissing: there is no Java, or neither the jars nor a Maven that gets them.
            ServerDidNotStart: it ended or did not answer in time.
        """
        server = cls(release, start_seconds, java_options)
        server._launch_or_clean_up()
        return server

    def _prepare(self) -> tuple[Sequence[str], Mapping[str, str] | None]:
        settings = {
            "server.default_listen_address": self.host,
            "server.bolt.listen_address": f"{self.host}:{self.ports[0]}",
            "server.bolt.advertised_address": f"{self.host}:{self.ports[0]}",
            "server.http.enabled": "false",
            "server.https.enabled": "false",
            "dbms.usage_report.enabled": "false",
            # Three wrong passwords would lock the user out for seconds, while only this machine can reach it.
            "dbms.security.auth_max_failed_attempts": "0",
            # Wait of a load for a bookmark that never comes; the default is 30 s.
            "db.transaction.bookmark_ready_timeout": "3s",
            "server.memory.pagecache.size": "64m",
            # Otherwise every orderly stop takes 5 s for connections that are already closed.
            "internal.server.bolt.thread_pool_shutdown_wait_time": "100ms",
            "internal.server.bolt.connection_shutdown_wait_time": "100ms",
            "db.tx_log.rotation.size": "16m",
            "db.tx_log.preallocate": "false",  # otherwise 256 MB for each database
            **self._more_settings,
        }
        if self._release is NEWEST:
            settings["db.query.default_language"] = "CYPHER_25"  # its own default is still Cypher 5
        config = self.directory / "neo4j.conf"
        config.touch(mode=0o600)
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        arguments = [
            "-Xmx512m",
            "-XX:-UsePerfData",
            *self._java_options,
            *(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED),
            "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
            "-cp",
            os.pathsep.join(self._class_path),
            self._release.main_class,
            f"--home-dir={self.directory}",
            f"--config-dir={self.directory}",
        ]
        return [self._java, *arguments], None

    def _answers(self) -> bool:
        try:  # before using the driver, which would log every refused attempt
            socket.create_connection((self.host, self.ports[0]), _ANSWER_SECONDS).close()
        except OSError:
            return False
        return self._runs_a_query() or (self._set_password() and self._runs_a_query())

    def _runs_a_query(self) -> bool:
        return self._run(self.password, self.database, "RETURN 1")

    def _set_password(self) -> bool:
        # Over Bolt, since the administrator's tool takes the password on its command line, which all users can read.
        statement = "ALTER CURRENT USER SET PASSWORD FROM $old TO $new"
        return self._run(_FACTORY_PASSWORD, "system", statement, old=_FACTORY_PASSWORD, new=self.password)

    def _run(self, password: str, database: str, statement: str, **parameters: str) -> bool:
        driver = GraphDatabase.driver(
            self.bolt_uri, auth=(self.user, password), connection_timeout=_ANSWER_SECONDS, max_transaction_retry_time=0
        )
        try:
            with driver, driver.session(database=database) as session:
                session.run(statement, parameters).consume()
        except (DriverError, Neo4jError, OSError):
            return False
        return True


class Neo4jWithApoc(Neo4jServer):
    """Neo4j's LTS release with APOC, whose triggers are enabled and take effect at once."""

    triggers_enabled: ClassVar[bool] = True

    def __init__(self, _: Neo4jRelease, start_seconds: float, java_options: Sequence[str] = ()) -> None:
        super().__init__(LTS, start_seconds, java_options)
        # Neo4j finds APOC's procedures in the plugins folder, but the code that runs its triggers only on the class
        # path.
        folder = str(apoc_jars(LTS))
        self._more_settings = {"server.directories.plugins": folder, "dbms.security.procedures.unrestricted": "apoc.*"}
        self._class_path.append(f"{folder}/*")

    def _prepare(self) -> tuple[Sequence[str], Mapping[str, str] | None]:
        enabled = str(self.triggers_enabled).lower()
        (self.directory / "apoc.conf").write_text(f"apoc.trigger.enabled={enabled}\napoc.trigger.refresh=50\n")
        return super()._prepare()
