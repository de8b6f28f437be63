"""Requests and replies as bytes; error replies as exceptions of redis-py and as messages. No I/O.

redis-py makes the connections (TLS, authentication, URL options). Its pool and command layer would dominate the cost of
a hit, so requests and replies bypass them: hiredis packs and parses.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable
from typing import Any, Final, TypeAlias, cast

import hiredis
from redis import exceptions

Argument: TypeAlias = str | bytes | int
Command: TypeAlias = tuple[Argument, ...]


NEEDS_MORE: Final = object()
"""Returned by a reply reader while a reply is incomplete."""

CHUNK_BYTES: Final = 65_536
LARGE_CHUNK_BYTES: Final = 1_048_576  # for the rest of a reply that did not fit into the first chunk


def pack(*command: Argument) -> bytes:
    """Return the bytes of one command."""
    # Only bytes, because hiredis up to 3.5.0 crashes the process if a signal handler raises while it converts an int to
    # text (docs/development/upstream/hiredis-pack-command.md).
    words = tuple([word if word.__class__ is bytes else _encoded(word) for word in command])
    packed: bytes = hiredis.pack_command(cast("tuple[bytes]", words))  # as its stub has it
    return packed


def pack_all(commands: Iterable[Command]) -> bytes:
    """Return the bytes of several commands in a row."""
    return b"".join([pack(*command) for command in commands])


def pack_get(key: str) -> bytes:
    """Return the bytes of a GET, which every hit sends."""
    name = key.encode()
    return b"*2\r\n$3\r\nGET\r\n$%d\r\n%b\r\n" % (len(name), name)


class BytesPacker:
    """Packs the commands of redis-py's own sync connections, as `pack` does."""

    def pack(self, *command: Any) -> list[bytes]:
        """Return the bytes of one command, whose first argument may be several words.

        Raises:
            redis.exceptions.DataError: an argument is neither text, bytes nor a number.
        """
        first, *rest = command
        return [pack(*_encoded(first).split(), *map(_encoded, rest))]


def pack_bytes_only(pool: Any) -> None:
    """Make future connections of a redis-py pool use `BytesPacker`."""
    pool.connection_kwargs["command_packer"] = BytesPacker()


def _encoded(word: Any) -> bytes:
    if isinstance(word, str):
        return word.encode()
    if isinstance(word, bytes | bytearray | memoryview):
        return bytes(word)
    if isinstance(word, int | float) and not isinstance(word, bool):
        return repr(word).encode()
    raise exceptions.DataError(f"an argument of type {type(word).__name__}: expected text, bytes or a number")


def reply_reader() -> Any:
    """Return a reader: ``feed(bytes)``, then ``gets()`` until it returns `NEEDS_MORE`.

    Error replies are returned (not raised) as exceptions of redis-py; a broken stream raises hiredis.ProtocolError.
    """
    return hiredis.Reader(replyError=error_reply, notEnoughData=NEEDS_MORE)


# These parse the text after the code.
_REDIRECTIONS: Final[dict[str, type[exceptions.AskError]]] = {
    "ASK": exceptions.AskError,
    "MOVED": exceptions.MovedError,
}
_ERRORS: Final[dict[str, type[exceptions.RedisError]]] = {
    "CLUSTERDOWN": exceptions.ClusterDownError,
    "LOADING": exceptions.BusyLoadingError,
    "MASTERDOWN": exceptions.MasterDownError,
    "NOAUTH": exceptions.AuthenticationError,
    "NOPERM": exceptions.NoPermissionError,
    "NOSCRIPT": exceptions.NoScriptError,
    "OOM": exceptions.OutOfMemoryError,
    "READONLY": exceptions.ReadOnlyError,
    "TRYAGAIN": exceptions.TryAgainError,
    "WRONGPASS": exceptions.AuthenticationError,
}

# Redis 6.2 wraps the error of a command in a script: "ERR Error running script (call to f_…): @user_script:7:
# @user_script: 7: -READONLY You can't …". Since 7.0 the code comes first. redis-py's parser cuts off the "ERR ".
_WRAPPED: Final = re.compile(r"(?:ERR )?Error running script \(call to f_[0-9a-f]+\): (?:@?user_script: ?\d+: )*-?")

# A missing permission of a command in a script has no code of its own; this is the text of 6.2 and 7.0, and of 7.2.
_FORBIDDEN: Final = re.compile(r"(?:ERR )?(?:The user executing the script can't|ACL failure in script:) ")


def error_reply(message: str) -> exceptions.RedisError:
    """Return an error reply as the exception of redis-py for its cause, in a script or not."""
    message = _WRAPPED.sub("", message, count=1)
    code, _, rest = message.partition(" ")
    if code in _REDIRECTIONS:
        return _REDIRECTIONS[code](rest)
    if _FORBIDDEN.match(message):
        return exceptions.NoPermissionError(message)
    return _ERRORS.get(code, exceptions.ResponseError)(message)


def unwrapped(error: exceptions.RedisError) -> exceptions.RedisError:
    """Return an error of redis-py's parser, which does not look into scripts' errors, as `error_reply` would."""
    if type(error) is not exceptions.ResponseError:
        return error
    message = str(error)
    return error_reply(message) if _WRAPPED.match(message) or _FORBIDDEN.match(message) else error


def is_wrong_node(reply: object) -> bool:
    """Return whether a node replies that it is no master, or not yet: another connection may find a better one."""
    return isinstance(reply, exceptions.ReadOnlyError | exceptions.MasterDownError | exceptions.BusyLoadingError)


def is_wrong_type(reply: object) -> bool:
    """Return whether the key holds the wrong type for the command."""
    return isinstance(reply, exceptions.ResponseError) and str(reply).startswith("WRONGTYPE")


def is_out_of_memory(reply: object) -> bool:
    """Return whether Redis is full and evicts nothing."""
    return isinstance(reply, exceptions.OutOfMemoryError)


def is_transient(reply: object) -> bool:
    """Return whether a refusal is due to the server's momentary state, not to its features or the user's rights."""
    return isinstance(reply, exceptions.MasterDownError | exceptions.BusyLoadingError | exceptions.TryAgainError) or (
        isinstance(reply, exceptions.ResponseError) and str(reply).startswith("BUSY ")
    )


_SILENCE: Final = (exceptions.TimeoutError, builtins.TimeoutError)
_CLOSED: Final = re.compile(r"(?i)reset by peer|broken pipe|closed")


def reason(error: Exception, url: str = "") -> str:
    """Describe an error of redis-py without secrets.

    Args:
        url: the server's URL, for a hint about TLS; "" for no hint, if connections are known to work.
    """
    hint = _tls_hint(error, url.partition(":")[0])
    return f"{_plain_reason(error)}; {hint}" if hint else _plain_reason(error)


def _tls_hint(error: Exception, scheme: str) -> str:
    """Return a hint for a TLS client of a server without TLS, or the reverse, as far as the error shows it.

    A Redis without TLS waits for the rest of the handshake as if it were a command; one with TLS closes the connection.
    """
    base, plus, topology = scheme.partition("+")
    if base in {"rediss", "amqps"} and (isinstance(error, _SILENCE) or "WRONG_VERSION_NUMBER" in str(error)):
        return f"if the server has no TLS, the URL begins with {base[:-1]}{plus}{topology}://"
    if base in {"redis", "amqp"} and _CLOSED.search(str(error)):
        return f"if the server has TLS, the URL begins with {base}s{plus}{topology}://"
    return ""


def _plain_reason(error: Exception) -> str:
    if isinstance(error, exceptions.AuthenticationError):
        return "it refuses this user or password"
    if isinstance(error, exceptions.TimeoutError):
        return "it did not answer in time"
    if isinstance(error, exceptions.ResponseError):
        return f"it answered {str(error)[:200]!r}"
    return f"{type(error).__name__}: {str(error)[:200]}"
