"""Permissions of a Redis user, found by running each required command once, on a key that nobody else has.

ACL commands, which would list them, are themselves a permission that nobody needs.
"""

from __future__ import annotations

import hashlib
import uuid
from typing import Final, TypeAlias
from urllib.parse import unquote

import redis
from redis.exceptions import NoPermissionError

from api_client.config.redis_url import read_url
from api_client.protocol.keys import CacheKey, dead_letters_key, make_key, versions_key

Command: TypeAlias = tuple[str | int, ...]

_SCRIPT: Final = "return 1"


def user_of(url: str) -> str:
    """Return the user that a URL names for the data nodes."""
    authority = read_url(url).node_url.partition("://")[2].partition("/")[0]
    return unquote(authority.rpartition("@")[0].partition(":")[0]) or "default"


class Permissions:
    """What a user lacks on the cache, in the words of an ACL file: of a key or a channel where the command is allowed.

    Args:
        node: a client signed in as the user; of a cluster, any node's.
        namespace: CACHE_NAMESPACE.

    Errors of Redis come as redis-py raises them.
    """

    def __init__(self, node: redis.Redis, namespace: str) -> None:
        self._node, self._namespace = node, namespace
        self._key = make_key(namespace, "refresher.doctor", {"rights": uuid.uuid4().hex}, 1)

    def missing_for_readers(self) -> list[str]:
        """Return what readers and workers need and the user lacks."""
        key = self._key
        return self._missing([
            ("TIME",), ("GET", key.entry), ("GETRANGE", key.entry, 0, 0), ("STRLEN", key.entry), ("PTTL", key.entry),
            ("HGETALL", key.record), ("HMGET", key.record, "x"), ("HSET", key.record, "x", "x"),
            ("PEXPIRE", key.record, 1_000), ("HDEL", key.record, "x"), ("DEL", key.record),
            ("EVAL", _SCRIPT, 2, key.entry, key.record),
            ("EVALSHA", hashlib.sha1(_SCRIPT.encode(), usedforsecurity=False).hexdigest(), 2, key.entry, key.record),
        ])  # fmt: skip

    def missing_for_operators(self) -> list[str]:
        """Return what doctor and the commands on keys need besides, and the user lacks."""
        key, letters = self._key, dead_letters_key(self._namespace)
        return self._missing([
            ("INFO", "server"), ("CLIENT LIST", "ID", 1), ("PUBLISH", key.channel, ""), ("ZREVRANGE", letters, 0, 0),
            ("ZRANGEBYSCORE", letters, 1, 1), ("ZREM", letters, ""),
            ("ZRANGE", versions_key(self._namespace, key.query), 0, -1),
        ])  # fmt: skip

    def missing_to_notify(self) -> list[str]:
        """Return what notifying waiting readers needs and the user lacks."""
        return self._missing([("PUBLISH", self._key.channel, "")])

    def _missing(self, commands: list[Command]) -> list[str]:
        with self._node.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)  # type: ignore[no-untyped-call] # as redis-py declares it
            replies = pipeline.execute(raise_on_error=False)
        missing = [
            self._name(command, str(reply))
            for command, reply in zip(commands, replies, strict=True)
            if isinstance(reply, NoPermissionError)
        ]
        # Where keys are missing for other commands, too, those of scripts need no permission of their own.
        are_keys_missing = any(name.startswith("%") for name in missing)
        return [name for name in dict.fromkeys(missing) if not (are_keys_missing and name.startswith("("))]

    def _name(self, command: Command, refusal: str) -> str:
        key: CacheKey = self._key
        entries, records = (f"{name.partition('{')[0]}*" for name in (key.entry, key.record))
        if "channel" in refusal:
            return f"&{key.channel.partition('{')[0]}*"
        if "key" not in refusal:
            return "+" + str(command[0]).lower().replace(" ", "|")
        if command[0] in {"EVAL", "EVALSHA"}:  # whose keys have to be writable, by name
            return f"(+evalsha +eval %RW~{entries} %RW~{records})"
        versions = versions_key(self._namespace, key.query)
        return {
            key.entry: f"%R~{entries}",
            key.record: f"%RW~{records}",
            versions: f"%RW~{versions.partition('{')[0]}*",
        }.get(str(command[1]), f"%RW~{dead_letters_key(self._namespace)}")
