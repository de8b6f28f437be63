"""Dead letters of abandoned refreshes: what, why, when, how many attempts. One bounded sorted set, newest last.

A letter is only a note, since the state of the key is in its lease record. So nothing is lost with a letter, and a
letter does not keep its key from being refreshed. A key has one letter, of its last failure, as long as its record
remembers the previous one; otherwise it has several, which are counted and dropped together.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final, cast

import msgspec
import redis

from api_client.protocol.keys import QUERY_NAME_PATTERN, dead_letters_key

MAX_KEPT: Final = 1_000


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """One abandoned refresh, at ``at_us`` by Redis' clock. ``id`` identifies it in commands.

    ``attempts`` is the number of that refresh's loads, ``failures`` the number of the key's refreshes abandoned in a
    row through its own fault. ``params`` and ``message`` are None if the query keeps them out of letters; then only a
    reader can request the refresh again. ``place`` is the failure's place in the loader's code (file, line and
    function), if any.
    """

    query: Annotated[str, msgspec.Meta(pattern=QUERY_NAME_PATTERN)]
    version: int
    params: dict[str, Any] | None
    digest: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{32}\Z")]
    token: int
    kind: str
    message: str | None
    attempts: int
    at_us: int
    failures: int = 0
    place: str = ""

    @property
    def id(self) -> str:
        """The run's token and the key's shortened digest: unique, and the same however often the letter is written."""
        return f"{self.token}-{self.digest[:8]}"


class DeadLetters:
    """The dead letters of a namespace, in a slot of their own, and so written in a separate step from the record."""

    def __init__(self, client: redis.Redis, namespace: str, *, max_kept: int = MAX_KEPT) -> None:
        self._client, self._key, self._max_kept = client, dead_letters_key(namespace), max_kept

    def add(self, letter: DeadLetter, *, replaced_token: int = 0) -> None:
        """Add a letter, dropping the oldest beyond 1,000. Adding it again changes nothing.

        The same key's letter with ``replaced_token`` (0: none) is removed afterwards.
        """
        self._client.zadd(self._key, {msgspec.json.encode(letter): letter.token})
        self._client.zremrangebyrank(self._key, 0, -self._max_kept - 1)
        if replaced_token:
            self._remove(raw for raw, other in self._with_token(replaced_token) if other.digest == letter.digest)

    def newest(self) -> list[DeadLetter]:
        """Return all letters, newest first, except for those that can't be decoded (of a later release, say)."""
        raws = cast("list[bytes]", self._client.zrevrange(self._key, 0, -1))
        return [letter for raw in raws if (letter := _decoded(raw)) is not None]

    def drop(self, letter: DeadLetter) -> bool:
        """Remove a letter; return False if it was already gone."""
        return bool(self._remove(raw for raw, other in self._with_token(letter.token) if other.id == letter.id))

    def _with_token(self, token: int) -> list[tuple[bytes, DeadLetter]]:
        """Return the letters of a token with their stored bytes, which releases may encode differently."""
        raws = cast("list[bytes]", self._client.zrangebyscore(self._key, token, token))
        return [(raw, letter) for raw in raws if (letter := _decoded(raw)) is not None]

    def _remove(self, raws: Iterable[bytes]) -> int:
        members = list(raws)
        return self._client.zrem(self._key, *members) if members else 0


def _decoded(raw: bytes) -> DeadLetter | None:
    try:
        return msgspec.json.decode(raw, type=DeadLetter)
    except msgspec.MsgspecError:
        return None


def letters_by_query(
    letters: Iterable[DeadLetter], queries: Iterable[str]
) -> tuple[dict[str, float], dict[str, float]]:
    """Count letters by query, and those among them of keys that failed several times in a row.

    Each of ``queries`` is counted, even at 0, so that an alert on it can end.
    """
    kept = dict.fromkeys(queries, 0.0)
    quarantined = dict(kept)
    for letter in letters:
        kept[letter.query] = kept.get(letter.query, 0) + 1
        quarantined[letter.query] = quarantined.get(letter.query, 0) + (letter.failures > 1)
    return kept, quarantined
