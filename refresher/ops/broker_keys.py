"""Types of kombu's keys on a Redis broker: a key that something else has replaced is named."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import redis
from kombu.transport.redis import Channel

_REMOTE_CONTROL: Final = ("celery.pidbox", "reply.celery.pidbox")


class ReplacedKey(NamedTuple):
    """A key of the broker that has another type than kombu gives it."""

    name: str
    actual: str
    expected: str

    @property
    def fault(self) -> str:
        """Fault."""
        return f"the broker's key {self.name!r} has type {self.actual}, expected {self.expected}"

    @property
    def remedy(self) -> str:
        """Remedy."""
        return f"DEL {self.name} on the broker (workers recreate it), and keep other applications off its database"


def replaced_keys(client: redis.Redis, queues: Iterable[str]) -> list[ReplacedKey]:
    """Return the keys of the broker that have a wrong type.

    Args:
        client: of the broker's database.
        queues: names of the queues that workers consume.

    Raises:
        redis.exceptions.RedisError: the broker can't be queried; TYPE is a right that a user may lack.
    """
    expected = _expected_types(queues)
    with client.pipeline(transaction=False) as pipeline:
        for name in expected:
            pipeline.type(name)
        types = [reply.decode() if isinstance(reply, bytes) else str(reply) for reply in pipeline.execute()]
    found = zip(expected.items(), types, strict=True)
    return [ReplacedKey(name, actual, right) for (name, right), actual in found if actual not in {right, "none"}]


def _expected_types(queues: Iterable[str]) -> dict[str, str]:
    names = list(queues)
    by_priority = [f"{name}{Channel.sep}{step}" for name in names for step in Channel.priority_steps if step]
    exchanges = [*names, *_REMOTE_CONTROL]
    return {
        **dict.fromkeys([*names, *by_priority], "list"),
        Channel.unacked_key: "hash",
        Channel.unacked_index_key: "zset",
        Channel.unacked_mutex_key: "string",
        **{Channel.keyprefix_queue % name: "set" for name in exchanges},
        **{Channel.keyprefix_binding_permanent % name: "set" for name in exchanges},
        Channel.keyprefix_binding_deadlines: "zset",
    }
