"""What goes to Redis and what comes back, as bytes: shared by the sync and the async connections. No I/O in here.

redis-py makes the connections (TLS, authentication, URL options); what a hit costs is its pool and its command layer,
so requests and replies pass those by: hiredis packs and parses, and one error becomes one of redis-py's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import hiredis

from api_client.error_replies import error_reply

Argument: TypeAlias = str | bytes | int
Command: TypeAlias = tuple[Argument, ...]

# Its stub takes a tuple of one.
_pack: Callable[[Command], bytes] = hiredis.pack_command  # type: ignore[assignment]

NEEDS_MORE: Final = object()
"""What a reply reader returns while a reply is not whole."""

CHUNK_BYTES: Final = 65_536
LARGE_CHUNK_BYTES: Final = 1_048_576  # for the rest of a reply that did not fit into the first


def pack(*command: Argument) -> bytes:
    """Return the bytes of one command."""
    return _pack(command)


def pack_all(commands: Iterable[Command]) -> bytes:
    """Return the bytes of several commands in a row."""
    return b"".join(map(_pack, commands))


def pack_get(key: str) -> bytes:
    """Return the bytes of a GET: what every hit sends."""
    name = key.encode()
    return b"*2\r\n$3\r\nGET\r\n$%d\r\n%b\r\n" % (len(name), name)


def reply_reader() -> Any:
    """Return a reader: ``feed(bytes)``, then ``gets()`` until it returns `NEEDS_MORE`.

    Error replies are returned (not raised) as exceptions of redis-py; a broken stream raises hiredis.ProtocolError.
    """
    return hiredis.Reader(replyError=error_reply, notEnoughData=NEEDS_MORE)
