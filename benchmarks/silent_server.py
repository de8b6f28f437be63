"""A server that accepts and never answers: what a hung broker looks like from outside."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Final, Self

_BACKLOG: Final = 128


class SilentServer:
    """Listens on a free port of the loopback address. The system itself accepts: nobody here ever reads."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)

    @property
    def url(self) -> str:
        """Its redis:// URL."""
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
