"""What a check of `refresher doctor` has found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from redis.exceptions import NoPermissionError, RedisError

from api_client.environment import without_password
from api_client.redis_edge import reason

FULL_SHARE: Final = 0.99
"""What is left then is too little for a message: Redis leaves some buffers out of what it compares with the bound."""


class Level(StrEnum):
    """How bad a finding is. Only a PROBLEM makes the command exit with 1."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found, and how to mend it where that is needed."""

    check: str
    level: Level
    said: str
    mend: str = ""


def unreachable(check: str, variable: str, url: str, error: Exception) -> Finding:
    """Return the finding that what ``url`` names can't be used; a password in it is not shown."""
    found: BaseException = error if isinstance(error, RedisError | OSError) else error.__cause__ or error
    why = reason(found) if isinstance(found, RedisError | OSError) else type(error).__name__
    mend = "start it, or correct the variable"
    if isinstance(found, NoPermissionError):
        mend = "give its user that right: the templates of deploy/redis have all that are needed"
    return Finding(check, Level.PROBLEM, f"{variable}={without_password(url)} can't be used: {why}", mend)


def used_share(info: Mapping[str, Any]) -> float:
    """Return how much of its bound a Redis uses, from its INFO; 0 where there is no bound."""
    bound = int(info.get("maxmemory", 0))
    return int(info.get("used_memory", 0)) / bound if bound else 0.0
