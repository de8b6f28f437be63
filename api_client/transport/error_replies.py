"""Redis' error replies as exceptions of redis-py, by one rule for every version, and what follows from each."""

from __future__ import annotations

import re
from typing import Final

from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)

# These read what follows the code.
_REDIRECTIONS: Final[dict[str, type[AskError]]] = {"ASK": AskError, "MOVED": MovedError}
_ERRORS: Final[dict[str, type[RedisError]]] = {
    "CLUSTERDOWN": ClusterDownError,
    "LOADING": BusyLoadingError,
    "MASTERDOWN": MasterDownError,
    "NOAUTH": AuthenticationError,
    "NOPERM": NoPermissionError,
    "NOSCRIPT": NoScriptError,
    "OOM": OutOfMemoryError,
    "READONLY": ReadOnlyError,
    "TRYAGAIN": TryAgainError,
    "WRONGPASS": AuthenticationError,
}

# Redis 6.2 wraps what a command inside a script has met: "ERR Error running script (call to f_…): @user_script:7:
# @user_script: 7: -READONLY You can't …". Since 7.0 the code comes first. redis-py's parser cuts off the "ERR ".
_WRAPPED: Final = re.compile(r"(?:ERR )?Error running script \(call to f_[0-9a-f]+\): (?:@?user_script: ?\d+: )*-?")

# A right that a command inside a script lacks has no code of its own: these are the words of 6.2 and 7.0, and of 7.2.
_FORBIDDEN: Final = re.compile(r"(?:ERR )?(?:The user executing the script can't|ACL failure in script:) ")


def error_reply(message: str) -> RedisError:
    """Return an error reply as the exception of redis-py for what was met, inside a script or not."""
    message = _WRAPPED.sub("", message, count=1)
    code, _, rest = message.partition(" ")
    if code in _REDIRECTIONS:
        return _REDIRECTIONS[code](rest)
    if _FORBIDDEN.match(message):
        return NoPermissionError(message)
    return _ERRORS.get(code, ResponseError)(message)


def unwrapped(error: RedisError) -> RedisError:
    """Return an error of redis-py's own parser, which does not know what a script has met, as `error_reply` has it."""
    if type(error) is not ResponseError:
        return error
    told = str(error)
    return error_reply(told) if _WRAPPED.match(told) or _FORBIDDEN.match(told) else error


def is_wrong_node(reply: object) -> bool:
    """Tell whether a node says of itself that it is no master, or not yet: another connection may find a better one."""
    return isinstance(reply, ReadOnlyError | MasterDownError | BusyLoadingError)


def is_wrong_type(reply: object) -> bool:
    """Tell whether a key holds another type than the command is for."""
    return isinstance(reply, ResponseError) and str(reply).startswith("WRONGTYPE")


def is_passing(reply: object) -> bool:
    """Tell whether a reply speaks of the server's present state alone, and not of what it or the user can do."""
    return isinstance(reply, MasterDownError | BusyLoadingError) or str(reply).startswith("BUSY ")
