"""What a process is called in lease records, for people."""

from __future__ import annotations

import os
import socket
from functools import cache
from typing import Final

MAX_NAME_CHARACTERS: Final = 200


def this_process() -> str:
    """Return what this process is called in lease records: host and process id."""
    return f"{_host()}:{os.getpid()}"


@cache
def _host() -> str:
    return socket.gethostname()


def shown_name(by: str | None) -> str:
    """Return a name that may be shown on a terminal, and that fills no memory; None is this process's own."""
    shown = this_process() if by is None else by
    return "".join(character for character in shown[:MAX_NAME_CHARACTERS] if character.isprintable())
