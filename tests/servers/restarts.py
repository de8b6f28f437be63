"""Restarts of embedded servers, with their data or empty."""
# ruff: noqa: SLF001 - nobody but tests restarts one

from __future__ import annotations

import shutil

from refresher.embedded import RedisServer
from refresher.embedded.server import EmbeddedServer


def restart(server: EmbeddedServer, *, keep_data: bool) -> None:
    """Start a server again on the same ports with the same password.

    With ``keep_data`` a running server ends gracefully and comes back with its data; one that was killed, with its
    data on disk. Without, it comes back empty.

    Raises:
        ServerDidNotStart: as for the first start.
    """
    if not keep_data:
        server.kill()
        _forget_data(server)
    elif server._process is not None and server.is_running:
        if isinstance(server, RedisServer):
            with server._client(server.start_seconds) as client:
                client.save()
        server._process.terminate()
    server._launch()


def _forget_data(server: EmbeddedServer) -> None:
    for path in server.directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.suffix in {".rdb", ".aof"}:
            path.unlink()
