"""What goes to Redis and what comes back, as bytes: shared by the sync and the async connections. No I/O in here.

redis-py makes the connections (TLS, authentication, URL options); what a hit costs is its pool and its command layer,
so requests and replies pass those by: hiredis packs and parses, and one error becomes one of redis-py's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias, cast

import hiredis
from redis.exceptions import DataError

from api_client.transport.error_replies import error_reply

Argument: TypeAlias = str | bytes | int
Command: TypeAlias = tuple[Argument, ...]


NEEDS_MORE: Final = object()
"""What a reply reader returns while a reply is not whole."""

CHUNK_BYTES: Final = 65_536
LARGE_CHUNK_BYTES: Final = 1_048_576  # for the rest of a reply that did not fit into the first


def pack(*command: Argument) -> bytes:
    """Return the bytes of one command."""
    # Only bytes: hiredis up to 3.5.0 crashes the process when a signal handler raises while it turns an int into text
    # (docs/upstream/hiredis-pack-command.md).
    words = tuple([word if word.__class__ is bytes else _encoded(word) for word in command])
    packed: bytes = hiredis.pack_command(cast("tuple[bytes]", words))  # so its stub has it
    return packed


def pack_all(commands: Iterable[Command]) -> bytes:
    """Return the bytes of several commands in a row."""
    return b"".join([pack(*command) for command in commands])


def pack_get(key: str) -> bytes:
    """Return the bytes of a GET: what every hit sends."""
    name = key.encode()
    return b"*2\r\n$3\r\nGET\r\n$%d\r\n%b\r\n" % (len(name), name)


class BytesPacker:
    """Packs the commands of redis-py's own sync connections, as `pack` does."""

    def pack(self, *command: Any) -> list[bytes]:
        """Return the bytes of one command, whose first argument may be several words.

        Raises:
            redis.exceptions.DataError: an argument is no text, bytes or number.
        """
        first, *rest = command
        return [pack(*_encoded(first).split(), *map(_encoded, rest))]


def pack_bytes_only(pool: Any) -> None:
    """Have the connections of a pool of redis-py's use `BytesPacker`: for those that are made from now on."""
    pool.connection_kwargs["command_packer"] = BytesPacker()


def _encoded(word: Any) -> bytes:
    if isinstance(word, str):
        return word.encode()
    if isinstance(word, bytes | bytearray | memoryview):
        return bytes(word)
    if isinstance(word, int | float) and not isinstance(word, bool):
        return repr(word).encode()
    raise DataError(f"an argument of type {type(word).__name__}: allowed are text, bytes and numbers")


def reply_reader() -> Any:
    """Return a reader: ``feed(bytes)``, then ``gets()`` until it returns `NEEDS_MORE`.

    Error replies are returned (not raised) as exceptions of redis-py; a broken stream raises hiredis.ProtocolError.
    """
    return hiredis.Reader(replyError=error_reply, notEnoughData=NEEDS_MORE)
