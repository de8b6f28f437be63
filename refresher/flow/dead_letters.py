"""Dead letters, of abandoned refreshes: what, why, when, how many attempts. One bounded sorted set, newest last.

A letter is a note, not the job: the state of the key is in its lease record. So nothing is lost with a letter, and a
letter does not keep the key from a refresh. A key has one letter, of its last failure, as long as the key's record
remembers the one before; else it has several, which are counted and dropped together.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final, cast

import msgspec
import redis

from api_client.protocol.keys import QUERY_NAME_PATTERN, dead_letters_key

MAX_KEPT: Final = 1_000


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """One abandoned refresh; ``at_us`` by Redis' clock. ``id`` names it in commands.

    ``attempts`` are the loads of that refresh, ``failures`` the refreshes of the key that were abandoned in a row for a
    fault of its own. ``params`` and ``message`` are None where the query keeps them out of letters: only a reader can
    request such a refresh. ``place`` is where the loader's code met the failure: file, line and function; "" elsewhere.
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
        """The run's token and the key's digest, shortened: unique, and the same however often it is written."""
        return f"{self.token}-{self.digest[:8]}"


class DeadLetters:
    """The dead letters of a namespace. Written apart from the lease record: another slot, so another step."""

    def __init__(self, client: redis.Redis, namespace: str, *, max_kept: int = MAX_KEPT) -> None:
        self._client, self._key, self._max_kept = client, dead_letters_key(namespace), max_kept

    def add(self, letter: DeadLetter, *, replaced_token: int = 0) -> None:
        """Add a letter; the oldest goes when there are more than 1,000. Adding it again changes nothing.

        The letter of the same key with ``replaced_token`` (0: none) goes once this one is there.
        """
        self._client.zadd(self._key, {msgspec.json.encode(letter): letter.token})
        self._client.zremrangebyrank(self._key, 0, -self._max_kept - 1)
        if replaced_token:
            self._remove(raw for raw, other in self._with_token(replaced_token) if other.digest == letter.digest)

    def newest(self) -> list[DeadLetter]:
        """Return all letters, newest first. Those that can't be decoded (of a later release, say) are left out."""
        raws = cast("list[bytes]", self._client.zrevrange(self._key, 0, -1))
        return [letter for raw in raws if (letter := _decoded(raw)) is not None]

    def drop(self, letter: DeadLetter) -> bool:
        """Remove a letter; False when it was gone already."""
        return bool(self._remove(raw for raw, other in self._with_token(letter.token) if other.id == letter.id))

    def _with_token(self, token: int) -> list[tuple[bytes, DeadLetter]]:
        """Return the letters of a token, as they stand: a release may spell one as another would not."""
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
    """Count letters by query, and of them those of keys that failed several times in a row.

    Of every one of ``queries`` too, at least 0, so that an alert on it can end.
    """
    kept = dict.fromkeys(queries, 0.0)
    quarantined = dict(kept)
    for letter in letters:
        kept[letter.query] = kept.get(letter.query, 0) + 1
        quarantined[letter.query] = quarantined.get(letter.query, 0) + (letter.failures > 1)
    return kept, quarantined
