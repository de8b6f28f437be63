"""Which rights the user of CACHE_REDIS_URL has: each command is tried once, on a key that nobody else has.

What may be asked of Redis about users (ACL) is a right that nobody needs, so the refusals have to tell.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import redis
from redis.exceptions import NoPermissionError, RedisError

from api_client.config.environment import without_password
from api_client.config.redis_url import read_url
from api_client.protocol.keys import CacheKey, dead_letters_key, make_key, versions_key
from api_client.transport.redis_py import reason

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


Command: TypeAlias = tuple[str | int, ...]

_SCRIPT: Final = "return 1"
_PUBLISH: Final = "+publish"
_AS_OPERATOR: Final = "sign in as operator (docs/security.md)"


def rights(node: redis.Redis, url: str, namespace: str) -> Finding:
    """Say which rights the user of ``url`` lacks on the cache, by the words of an ACL file.

    Args:
        node: a client that is signed in as that user; of a cluster, of the key's node.
        url: CACHE_REDIS_URL.
        namespace: CACHE_NAMESPACE.

    Raises:
        redis.exceptions.RedisError: Redis can't be asked.
    """
    user = user_of(url)
    key = make_key(namespace, "refresher.doctor", {"rights": uuid.uuid4().hex}, 1)
    missing = _refused(node, key, namespace, _of_readers(key))
    if missing:
        return Finding(
            "rights", Level.PROBLEM, f"the user {user} lacks what readers and workers need: {' '.join(missing)}",
            f"ACL SETUSER {user} {' '.join(missing)}, or the ACL file of deploy/redis; if need be on every node",
        )  # fmt: skip
    missing = _refused(node, key, namespace, _of_commands(key, namespace))
    if missing:
        needs = "doctor, `refresher dead` and `refresher invalidate`"
        if any(right in {_PUBLISH, _channels(key)} for right in missing):
            needs += ", and notifying readers that wait (else they poll for what this user commits or invalidates),"
        said = f"the user {user} lacks what {needs} need: {' '.join(missing)}"
        return Finding("rights", Level.WARNING, said, f"{_AS_OPERATOR}, or give it these")
    return Finding("rights", Level.OK, f"the user {user} has what readers, doctor and `refresher dead` need")


def user_of(url: str) -> str:
    """Return as whom a URL signs in on the data nodes."""
    authority = read_url(url).node_url.partition("://")[2].partition("/")[0]
    return unquote(authority.rpartition("@")[0].partition(":")[0]) or "default"


def forbidden(check: str, error: Exception) -> Finding:
    """Return the finding of a check that could not look, for want of a right that the line on rights names."""
    return Finding(check, Level.WARNING, f"not looked at, a right is missing: {str(error)[:200]}", _AS_OPERATOR)


def missing_to_notify(client: redis.Redis, namespace: str) -> str | None:
    """Return the right that the user of ``client`` lacks to notify readers that wait; None: it has all.

    Raises:
        redis.exceptions.RedisError: Redis can't be asked.
    """
    key = make_key(namespace, "refresher.doctor", None, 1)
    try:
        client.publish(key.channel, "")
    except NoPermissionError as error:
        return _right(("PUBLISH", key.channel), key, namespace, str(error))
    return None


def _of_readers(key: CacheKey) -> list[Command]:
    return [
        ("TIME",), ("GET", key.entry), ("GETRANGE", key.entry, 0, 0), ("STRLEN", key.entry), ("PTTL", key.entry),
        ("HGETALL", key.record), ("HMGET", key.record, "x"), ("HSET", key.record, "x", "x"),
        ("PEXPIRE", key.record, 1_000), ("HDEL", key.record, "x"), ("DEL", key.record),
        ("EVAL", _SCRIPT, 2, key.entry, key.record),
        ("EVALSHA", hashlib.sha1(_SCRIPT.encode(), usedforsecurity=False).hexdigest(), 2, key.entry, key.record),
    ]  # fmt: skip


def _of_commands(key: CacheKey, namespace: str) -> list[Command]:
    letters = dead_letters_key(namespace)
    return [
        ("INFO", "server"), ("CLIENT LIST", "ID", 1), ("PUBLISH", key.channel, ""), ("ZREVRANGE", letters, 0, 0),
        ("ZRANGEBYSCORE", letters, 1, 1), ("ZREM", letters, ""),
        ("ZRANGE", versions_key(namespace, key.query), 0, -1),
    ]  # fmt: skip


def _refused(node: redis.Redis, key: CacheKey, namespace: str, commands: list[Command]) -> list[str]:
    """Return the rights for want of which commands are refused, each once."""
    with node.pipeline(transaction=False) as pipeline:
        for command in commands:
            pipeline.execute_command(*command)  # type: ignore[no-untyped-call] # as redis-py declares it
        replies = pipeline.execute(raise_on_error=False)
    missing = [
        _right(command, key, namespace, str(reply))
        for command, reply in zip(commands, replies, strict=True)
        if isinstance(reply, NoPermissionError)
    ]
    # Where keys are missing for other commands, too, those of scripts need no right of their own.
    are_keys_missing = any(right.startswith("%") for right in missing)
    return [right for right in dict.fromkeys(missing) if not (are_keys_missing and right.startswith("("))]


def _channels(key: CacheKey) -> str:
    return f"&{key.channel.partition('{')[0]}*"


def _right(command: Command, key: CacheKey, namespace: str, refusal: str) -> str:
    """Return the right, as an ACL file spells it: of the key or the channel where the command itself is allowed."""
    if "channel" in refusal:
        return _channels(key)
    if "key" not in refusal:
        return "+" + str(command[0]).lower().replace(" ", "|")
    if command[0] in {"EVAL", "EVALSHA"}:  # whose keys have to be writable, by name
        return f"(+evalsha +eval %RW~{key.entry.partition('{')[0]}* %RW~{key.record.partition('{')[0]}*)"
    name = str(command[1])
    if name == versions_key(namespace, key.query):
        return f"%RW~{name.partition('{')[0]}*"
    if name == key.entry:
        return f"%R~{key.entry.partition('{')[0]}*"
    return f"%RW~{key.record.partition('{')[0]}*" if name == key.record else f"%RW~{dead_letters_key(namespace)}"
