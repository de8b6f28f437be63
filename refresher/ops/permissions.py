"""Permissions of a Redis user, found by running each required command once, on a key that nobody else uses.

ACL commands, which would list them, require a permission that nobody needs otherwise.
"""

from __future__ import annotations

import hashlib
import uuid
from typing import Final, TypeAlias
from urllib.parse import unquote

import redis
from redis.exceptions import NoPermissionError

from api_client.config.redis_url import read_url
from api_client.protocol import keys
from api_client.transport.redis_py import node_of, open_pubsub

Command: TypeAlias = tuple[str | int, ...]

USERS_GUIDE: Final = "docs/how-to/users-and-tls.md"
_SCRIPT: Final = "return 1"
_WRITES: Final = frozenset(("SET", "SETRANGE", "DEL", "ZADD", "PEXPIREAT", "ZREMRANGEBYSCORE"))


def user_of(url: str) -> str:
    """Return the user that a URL names for the data nodes."""
    authority = read_url(url).node_url.partition("://")[2].partition("/")[0]
    return unquote(authority.rpartition("@")[0].partition(":")[0]) or "default"


def is_forbidden(error: BaseException | None) -> bool:
    """Return whether Redis or RabbitMQ refused because of a missing permission."""
    from amqp.exceptions import AccessRefused  # type: ignore[import-untyped]  # py-amqp has no types

    return isinstance(error, NoPermissionError | AccessRefused)


def refused_part(refusal: str) -> str:
    """Return what a refusal of Redis is about: "command", "key" or "channel". Since 7.2 its text names the user."""
    what = refusal.partition(" permissions to ")[2]
    if what.startswith("run "):
        return "command"
    return "channel" if "channel" in what else "key"


class Permissions:
    """Permissions that a user lacks on the cache, in ACL syntax: the key or channel if the command is allowed.

    Args:
        client: a client signed in as the user; in a cluster, one node is examined.
        namespace: CACHE_NAMESPACE.

    redis-py's errors pass through.
    """

    def __init__(self, client: redis.Redis, namespace: str) -> None:
        self._key = keys.make_key(namespace, "refresher.doctor", {"rights": uuid.uuid4().hex}, 1)
        self._node, self._namespace = node_of(client, self._key.entry), namespace

    def missing_for_readers(self) -> list[str]:
        """Return the permissions that readers and workers need and the user lacks."""
        return self._missing(self._reader_commands())

    def missing_for_workers(self) -> list[str]:
        """Return the permissions that a refresh needs and the user lacks, except for PUBLISH (readers can poll)."""
        return self._missing([*self._step_commands(), *self._worker_commands()])

    def missing_for_speed(self, *, tracks: bool, timeout_seconds: float) -> list[str]:
        """Return the permissions that only speed readers up and the user lacks: notifications, batches, tracking.

        Args:
            tracks: True if the in-process cache is on.
            timeout_seconds: the bound of the reply to SUBSCRIBE.
        """
        tracking: list[Command] = [("CLIENT TRACKING", "OFF")] if tracks else []
        return self._missing_to_subscribe(timeout_seconds) + self._missing([self._look_up_versions(), *tracking])

    def missing_for_operators(self) -> list[str]:
        """Return the permissions that doctor and the commands on keys need in addition, and the user lacks."""
        key = self._key
        return self._missing([
            ("INFO", "server"), ("CLIENT LIST", "ID", 1), ("SCAN", 0, "COUNT", 1),
            ("PUBLISH", key.channel, ""), *self._dead_letter_commands(), self._look_up_versions(),
            ("GET", keys.feed_state_key(self._namespace)),
        ])  # fmt: skip

    def missing_for_dead_letters(self) -> list[str]:
        """Return the permissions that `refresher dead` needs and the user lacks."""
        return self._missing([*self._reader_commands(), *self._dead_letter_commands()])

    def missing_to_invalidate(self) -> list[str]:
        """Return the permissions that invalidating needs and the user lacks."""
        key, versions = self._key, keys.versions_key(self._namespace, self._key.query)
        return self._missing([
            *self._reader_commands(), ("PUBLISH", key.channel, ""), ("SETRANGE", key.entry, 0, ""), ("DEL", key.entry),
            self._look_up_versions(), ("EVAL", _SCRIPT, 1, versions),
        ])  # fmt: skip

    def missing_to_invalidate_tags(self) -> list[str]:
        """Return the permissions that invalidating by tags needs and the user lacks."""
        return list(dict.fromkeys([*self.missing_to_invalidate(), *self._missing(self._tag_commands())]))

    def missing_to_notify(self) -> list[str]:
        """Return the permissions that notifying waiting readers needs and the user lacks."""
        return self._missing([("PUBLISH", self._key.channel, "")])

    def _reader_commands(self) -> list[Command]:
        key = self._key
        return [("GET", key.entry), ("STRLEN", key.entry), ("HGETALL", key.record), *self._step_commands()]

    def _step_commands(self) -> list[Command]:
        key = self._key
        return [
            ("TIME",), ("GETRANGE", key.entry, 0, 0), ("PTTL", key.entry), ("HMGET", key.record, "x"),
            ("HSET", key.record, "x", "x"), ("PEXPIRE", key.record, 1_000), ("HDEL", key.record, "x"),
            ("DEL", key.record), ("EVAL", _SCRIPT, 2, key.entry, key.record),
            ("EVALSHA", hashlib.sha1(_SCRIPT.encode(), usedforsecurity=False).hexdigest(), 2, key.entry, key.record),
        ]  # fmt: skip

    def _worker_commands(self) -> list[Command]:
        """Return the further commands of workers' scripts, on keys of each kind; they change nothing."""
        entry, versions = self._key.entry, keys.versions_key(self._namespace, self._key.query)
        clock, pending = keys.tag_clock_key(self._namespace), keys.pending_tags_key(self._namespace)
        index, state = self._tag_keys()
        shares, pace = keys.budget_keys(self._namespace, self._key.query)
        return [
            ("SET", entry, "", "XX"), ("SETRANGE", entry, 0, ""), ("DEL", entry), self._look_up_versions(),
            ("ZADD", versions, "XX", 0, ""), ("PEXPIREAT", versions, 1), ("ZREMRANGEBYSCORE", versions, 1, 1),
            ("ZCARD", shares), ("ZREM", shares, ""), ("ZRANGEBYSCORE", index, 1, 1), ("ZREMRANGEBYRANK", index, 0, 0),
            ("GET", clock), ("ZADD", keys.dead_letters_key(self._namespace), "XX", 0, ""),
            ("EVAL", _SCRIPT, 1, versions), ("EVAL", _SCRIPT, 2, shares, pace), ("EVAL", _SCRIPT, 1, index),
            ("EVAL", _SCRIPT, 1, state), ("EVAL", _SCRIPT, 1, clock), ("EVAL", _SCRIPT, 1, pending),
        ]  # fmt: skip

    def _tag_keys(self) -> tuple[str, str]:
        """Return the index and state keys of a tag that nobody uses."""
        tag = self._key.digest.hex()
        return keys.tag_index_key(self._namespace, tag), keys.tag_state_key(self._namespace, tag)

    def _dead_letter_commands(self) -> list[Command]:
        letters = keys.dead_letters_key(self._namespace)
        return [("ZREVRANGE", letters, 0, 0), ("ZRANGEBYSCORE", letters, 1, 1), ("ZREM", letters, "")]

    def _tag_commands(self) -> list[Command]:
        clock, pending = keys.tag_clock_key(self._namespace), keys.pending_tags_key(self._namespace)
        index, state = self._tag_keys()
        # A missing clock counts as 0, and an existing one is left alone.
        return [
            ("GET", clock), ("SET", clock, 0, "NX"), ("EVAL", _SCRIPT, 1, clock), ("ZREM", pending, ""),
            ("ZADD", pending, "XX", 0, ""), ("ZRANGEBYSCORE", index, 1, 1), ("EVAL", _SCRIPT, 2, index, state),
            ("HDEL", state, "x"),
        ]  # fmt: skip

    def _look_up_versions(self) -> Command:
        return "ZRANGE", keys.versions_key(self._namespace, self._key.query), 0, -1

    def _missing_to_subscribe(self, timeout_seconds: float) -> list[str]:
        with open_pubsub(self._node) as listener:
            try:
                listener.subscribe(self._key.channel)
                listener.get_message(timeout=timeout_seconds)
            except NoPermissionError as refusal:
                return [self._name(("SUBSCRIBE", self._key.channel), str(refusal))]
        return []

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
        # If keys are missing for other commands too, those of scripts need no permission of their own.
        are_keys_missing = any(name.startswith("%") for name in missing)
        needless = {name.replace("%RW~", "%R~") for name in missing if name.startswith("%RW~")}
        return [
            name for name in dict.fromkeys(missing)
            if name not in needless and not (are_keys_missing and name.startswith("(+eval"))
        ]  # fmt: skip

    def _name(self, command: Command, refusal: str) -> str:
        key = self._key
        entries, records = (f"{name.partition('{')[0]}*" for name in (key.entry, key.record))
        part = refused_part(refusal)
        if part == "channel":
            return f"&{key.channel.partition('{')[0]}*"
        if part == "command":
            # With these commands an invalidator may write nothing else.
            if command[:2] == ("SET", keys.tag_clock_key(self._namespace)):
                return f"(+set %RW~{command[1]})"
            if command[1:2] == (keys.pending_tags_key(self._namespace),):
                return f"(+zadd +zrem %RW~{command[1]})"
            return "+" + str(command[0]).lower().replace(" ", "|")
        is_script = command[0] in {"EVAL", "EVALSHA"}  # whose named keys have to be writable
        if is_script and command[3] == key.entry:
            return f"(+evalsha +eval %RW~{entries} %RW~{records})"
        access = "%RW" if is_script or command[0] in _WRITES else "%R"
        versions, (index, state) = keys.versions_key(self._namespace, key.query), self._tag_keys()
        return {
            key.entry: f"{access}~{entries}",
            key.record: f"%RW~{records}",
            versions: f"{access}~{versions.partition('{')[0]}*",
            keys.budget_keys(self._namespace, key.query)[0]: f"%RW~{self._namespace}:b1:*",
            keys.tag_clock_key(self._namespace): f"%RW~{keys.tag_clock_key(self._namespace)}",
            keys.pending_tags_key(self._namespace): f"%RW~{keys.pending_tags_key(self._namespace)}",
            keys.feed_state_key(self._namespace): f"%R~{keys.feed_state_key(self._namespace)}",
            index: f"%RW~{self._namespace}:t1:*",
            state: f"%RW~{self._namespace}:g1:*",
        }.get(str(command[3] if is_script else command[1]), f"%RW~{keys.dead_letters_key(self._namespace)}")
