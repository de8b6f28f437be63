"""Keys that were given up: their dead letters beside how each stands now, and what can be done about them.

::

    letter ──▶ retry: refresh() passes the pause ──▶ committed ──▶ letters dropped
                                                 ├─▶ given up again ──▶ a newer letter takes its place
                                                 └─▶ not known in time ──▶ the letter stays
           └─▶ drop: the letters go; a pause that is left is ended, and the count with it
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import redis

from api_client.client import CacheClient
from api_client.config.settings import SharedSettings
from api_client.errors import CacheError
from api_client.explain import Explanation, explain_reads, explanation
from api_client.protocol import lease
from api_client.protocol.keys import CacheKey, key_of_digest
from api_client.protocol.lease import ClaimStatus, RecordState
from api_client.protocol.model import RefreshState
from api_client.transport.redis_py import node_of
from api_client.transport.scripts import LeaseStore
from refresher.flow.dead_letters import DeadLetter, DeadLetters

FIRST_PAUSE_SECONDS: Final = 0.05
MAX_PAUSE_SECONDS: Final = 0.5


class KeyStatus(StrEnum):
    """How a key that was given up stands now."""

    REFRESHED = "refreshed"  # a later run has committed: the letter is history
    QUARANTINED = "quarantined"
    COOLING = "cooling"
    QUEUED = "queued"
    RUNNING = "running"
    RETRYING = "retrying"
    IDLE = "idle"  # the next reader asks


class Retried(StrEnum):
    """What came of a retry."""

    REFRESHED = "refreshed"
    FAILED_AGAIN = "failed again"
    ASKED = "asked for"  # not known yet, or not waited for
    NOT_KEPT = "params not kept"
    NOT_ASKED = "could not be asked for"


@dataclass(frozen=True, slots=True)
class DeadKey:
    """A key that was given up: its newest letter, how many it has, and how it stands."""

    key: CacheKey
    letter: DeadLetter
    letters: tuple[DeadLetter, ...]
    now: Explanation

    @property
    def standing(self) -> KeyStatus:
        """How the key stands now."""
        record = self.now.record
        if record is not None and record.left > 0:
            if record.state is RecordState.COOLING:
                return KeyStatus.QUARANTINED if record.failures > 1 else KeyStatus.COOLING
            if record.state is not RecordState.INVALIDATED:
                return KeyStatus(record.state.value)
        return KeyStatus.REFRESHED if self.now.token > self.letter.token else KeyStatus.IDLE

    @property
    def left_seconds(self) -> float:
        """For how long it stands so; 0 where that has no end of its own."""
        return self.now.record.left if self.now.record is not None else 0.0


@dataclass(frozen=True, slots=True)
class RetryResult:
    """What came of the retry of one key; ``why`` says more where there is more to say."""

    dead: DeadKey
    what: Retried
    why: str = ""


class DeadKeys:
    """The keys of a namespace that have dead letters. Errors of Redis come as redis-py raises them."""

    def __init__(self, client: redis.Redis, settings: SharedSettings) -> None:
        self._client, self._settings = client, settings
        self._letters, self._store = DeadLetters(client, settings.namespace), LeaseStore(client)

    def all(self) -> list[DeadKey]:
        """Return all of them, those that failed last first."""
        by_key: dict[tuple[str, int, str], list[DeadLetter]] = {}
        for letter in self._letters.newest():
            by_key.setdefault((letter.query, letter.version, letter.digest), []).append(letter)
        keys = [self._key(letters[0]) for letters in by_key.values()]
        return [
            DeadKey(key, letters[0], tuple(letters), now)
            for key, letters, now in zip(keys, by_key.values(), self._explained(keys), strict=True)
        ]

    def drop(self, dead: DeadKey) -> bool:
        """Forget the key's failures: its letters go, and a pause that is left ends. Returns whether one was ended."""
        ended = dead.standing in {KeyStatus.COOLING, KeyStatus.QUARANTINED} and self._end_pause(dead.key)
        self._drop_letters(dead)
        return ended

    def retry(
        self,
        chosen: Sequence[DeadKey],
        client: CacheClient,
        *,
        wait_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> list[RetryResult]:
        """Refresh keys now, whether they pause or not, and wait for what comes of it, at most ``wait_seconds``.

        The letters of those that are refreshed are dropped. All others stay.
        """
        results = [self._ask(dead, client) for dead in chosen]
        deadline, pause_seconds = monotonic() + wait_seconds, FIRST_PAUSE_SECONDS
        while any(result.what is Retried.ASKED for result in results) and monotonic() < deadline:
            sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, MAX_PAUSE_SECONDS)
            results = self._looked_at(results)
        for result in results:
            if result.what is Retried.REFRESHED:
                self._drop_letters(result.dead)
        return results

    def _ask(self, dead: DeadKey, client: CacheClient) -> RetryResult:
        letter = dead.letter
        if letter.params is None:
            return RetryResult(dead, Retried.NOT_KEPT, "drop it, and the next reader asks")
        try:
            state = client.refresh(letter.query, letter.params, version=letter.version)
        except CacheError as error:
            return RetryResult(dead, Retried.NOT_ASKED, str(error))
        return RetryResult(dead, Retried.ASKED, "one is under way" if state is RefreshState.SUPPRESSED else "")

    def _looked_at(self, results: Iterable[RetryResult]) -> list[RetryResult]:
        """Look once more at those of which it is not known yet."""
        looked = list(results)
        asked = [number for number, result in enumerate(looked) if result.what is Retried.ASKED]
        explained = self._explained([looked[number].dead.key for number in asked])
        for number, now in zip(asked, explained, strict=True):
            before = looked[number].dead.now.token
            dead = replace(looked[number].dead, now=now)
            # Another token, too: it need not be a larger one where Redis' clock was set back, and the entry had gone.
            if dead.standing is KeyStatus.REFRESHED or now.token not in {0, before}:
                looked[number] = RetryResult(dead, Retried.REFRESHED)
            elif dead.standing in {KeyStatus.COOLING, KeyStatus.QUARANTINED} and now.record is not None:
                looked[number] = RetryResult(dead, Retried.FAILED_AGAIN, now.record.kind)
        return looked

    def _explained(self, keys: Sequence[CacheKey]) -> list[Explanation]:
        """Explain keys, in one round trip a node."""
        of_node: dict[int, tuple[redis.Redis, list[CacheKey]]] = {}
        for key in keys:
            node = node_of(self._client, key.entry)
            of_node.setdefault(id(node), (node, []))[1].append(key)
        told = {key: now for node, some in of_node.values() for key, now in _explained_by(node, some)}
        return [told[key] for key in keys]

    def _end_pause(self, key: CacheKey) -> bool:
        """End a pause and its count: a forced claim that is taken back leaves the key as if nothing had been."""
        retention_seconds, claim_id = self._settings.record_retention_seconds, uuid.uuid4().hex
        reply = self._store.run(
            lease.claim(
                key, claim_id=claim_id, seen_token=None, queue_ttl_seconds=self._settings.queue_ttl_seconds,
                retention_seconds=retention_seconds, force=True,
            )
        )  # fmt: skip
        if reply.status is not ClaimStatus.CLAIMED:
            return False
        return self._store.run(
            lease.unclaim(key, claim_id=claim_id, retention_seconds=retention_seconds, forget_failures=True)
        )

    def _drop_letters(self, dead: DeadKey) -> None:
        for letter in dead.letters:
            self._letters.drop(letter)

    def _key(self, letter: DeadLetter) -> CacheKey:
        return key_of_digest(self._settings.namespace, letter.query, letter.version, bytes.fromhex(letter.digest))


def _explained_by(node: redis.Redis, keys: Sequence[CacheKey]) -> list[tuple[CacheKey, Explanation]]:
    reads = [explain_reads(key) for key in keys]
    with node.pipeline(transaction=False) as pipeline:
        for commands in reads:
            for command in commands:
                pipeline.execute_command(*command)  # type: ignore[no-untyped-call] # as redis-py declares it
        replies = iter(pipeline.execute(raise_on_error=False))
    return [
        (key, explanation(key, [next(replies) for _ in commands])) for key, commands in zip(keys, reads, strict=True)
    ]
