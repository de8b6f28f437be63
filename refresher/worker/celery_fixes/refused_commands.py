"""Names of commands that a broker rejected, for the log: a command and its key, never its arguments."""

from __future__ import annotations

import re
import traceback
from typing import Any, Final

_MAX_NAME: Final = 120
_IN_PIPELINE: Final = re.compile(r"Command # \d+ \(([^\s)]+)(?: ([^\s)]+))?")
# Position of the first key, if a number of keys or a subcommand precedes it.
_KEY_AT: Final = {"EVAL": 3, "EVALSHA": 3, "OBJECT": 2}
# Commands whose arguments are not keys, and may be secrets.
_WITHOUT_KEY: Final = frozenset({"AUTH", "HELLO", "ACL", "CONFIG", "CLIENT", "SCRIPT", "SELECT"})


def describe_refused_command(error: BaseException) -> str:
    """Return the rejected command and the broker's reason.

    Args:
        error: the caught error, with its traceback. py-amqp's errors name the command. redis-py's do not, so it is read
            from the frames in which it was sent or its reply was parsed.
    """
    reply = str(error).rpartition("caused error: ")[2].partition(", with args")[0]
    refusal = f"{type(error).__name__}: {reply[:300]}"
    command = _in_pipeline(error) or _in_traceback(error)
    return f"{command}: {refusal}" if command else refusal


def _in_pipeline(error: BaseException) -> str:
    found = _IN_PIPELINE.match(str(error))
    return _shown([part for part in found.groups() if part]) if found else ""


def _in_traceback(error: BaseException) -> str:
    for frame, _ in traceback.walk_tb(error.__traceback__):
        local = frame.f_locals
        match frame.f_code.co_name:
            case "execute_command" | "immediate_execute_command":
                if command := _shown(local.get("args", ())):
                    return command
            case "_brpop_read" | "_poll_error":
                return _shown(["BRPOP", *getattr(local.get("self"), "active_queues", ())], keys=2)
            case "_receive" | "_receive_one":
                subscribed = getattr(local.get("self"), "subclient", None)
                channels = [*getattr(subscribed, "channels", ()), *getattr(subscribed, "patterns", ())]
                return _shown(["SUBSCRIBE or PSUBSCRIBE", *channels], keys=len(channels))
    return ""


def _shown(command: Any, keys: int = 1) -> str:
    """Format a command with its first keys or channels."""
    parts = [part.decode("utf-8", "replace") if isinstance(part, bytes) else str(part) for part in command]
    if not parts:
        return ""
    name = parts[0].upper() if " " not in parts[0] else parts[0]
    first = _KEY_AT.get(name, 1)
    named = [] if name in _WITHOUT_KEY else parts[first : first + keys]
    return f"{name} {', '.join(ascii(part)[:_MAX_NAME] for part in named)}".rstrip()
