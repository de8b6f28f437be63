"""Refreshes that were given up: what, why, when, how often tried. One bounded sorted set, newest last."""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec
import redis

from api_client.keys import dead_letters_key

MOST_KEPT: Final = 1_000


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """One refresh that was given up; ``at_us`` by Redis' clock. ``id`` names it in commands."""

    query: str
    version: int
    params: dict[str, Any]
    digest: str
    token: int
    kind: str
    message: str
    attempts: int
    at_us: int

    @property
    def id(self) -> str:
        """The run's token and the key's digest, shortened: unique, and the same however often it is written."""
        return f"{self.token}-{self.digest[:8]}"


class DeadLetters:
    """The dead letters of a namespace. Written apart from the lease record: another slot, so another step."""

    def __init__(self, client: redis.Redis, namespace: str, *, most_kept: int = MOST_KEPT) -> None:
        self._client, self._key, self._most_kept = client, dead_letters_key(namespace), most_kept

    def add(self, letter: DeadLetter) -> None:
        """Add a letter; the oldest goes when there are more than 1,000. Adding it again changes nothing."""
        with self._client.pipeline(transaction=False) as pipeline:
            pipeline.zadd(self._key, {msgspec.json.encode(letter): letter.token})
            pipeline.zremrangebyrank(self._key, 0, -self._most_kept - 1)
            pipeline.execute()

    def newest(self, most: int = MOST_KEPT) -> list[DeadLetter]:
        """Return up to ``most`` letters, newest first."""
        letters = cast("list[bytes]", self._client.zrevrange(self._key, 0, most - 1))
        return [msgspec.json.decode(raw, type=DeadLetter) for raw in letters]

    def drop(self, letter: DeadLetter) -> bool:
        """Remove a letter; False when it was gone already."""
        return bool(self._client.zrem(self._key, msgspec.json.encode(letter)))
