"""Dead keys, whose refresh was abandoned: their dead letters, their present state, and the ways to clear them.

::

    letter ──▶ retry: refresh() passes the backoff ──▶ committed ──▶ letters dropped
                                                   ├─▶ failed again ──▶ a newer letter takes its place
                                                   └─▶ unknown in time ──▶ the letter stays
           └─▶ drop: the letters go; any remaining backoff ends, and the count of failures with it
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
from api_client.explain import Explanation
from api_client.protocol import lease
from api_client.protocol.keys import CacheKey, key_of_digest
from api_client.protocol.lease import ClaimStatus, RecordState
from api_client.protocol.model import RefreshState
from api_client.transport.scripts import LeaseStore
from refresher.flow.dead_letters import DeadLetter, DeadLetters
from refresher.ops.lookup import explain_keys
from refresher.ops.permissions import is_forbidden

FIRST_PAUSE_SECONDS: Final = 0.05
MAX_PAUSE_SECONDS: Final = 0.5


class KeyStatus(StrEnum):
    """Present state of a dead key."""

    REFRESHED = "refreshed"  # a later run has committed, so the letter is history
    QUARANTINED = "quarantined"
    COOLING = "cooling"
    QUEUED = "queued"
    RUNNING = "running"
    RETRYING = "retrying"
    IDLE = "idle"  # the next reader triggers a refresh


class RetryOutcome(StrEnum):
    """Result of a retry; the values are printed and documented."""

    REFRESHED = "refreshed"
    FAILED_AGAIN = "failed again"
    PENDING = "requested"  # not known yet, or not waited for
    NOT_KEPT = "params not kept"
    REQUEST_FAILED = "could not be requested"


@dataclass(frozen=True, slots=True)
class DeadKey:
    """A key whose refresh was abandoned: its newest letter, all letters, and its state."""

    key: CacheKey
    letter: DeadLetter
    letters: tuple[DeadLetter, ...]
    now: Explanation

    @property
    def status(self) -> KeyStatus:
        """The key's present state."""
        record = self.now.record
        if record is not None and record.left > 0:
            if record.state is RecordState.COOLING:
                return KeyStatus.QUARANTINED if record.failures > 1 else KeyStatus.COOLING
            if record.state is not RecordState.INVALIDATED:
                return KeyStatus(record.state.value)
        return KeyStatus.REFRESHED if self.now.token > self.letter.token else KeyStatus.IDLE

    @property
    def left_seconds(self) -> float:
        """The rest of the state's time; 0 if it has no end of its own."""
        return self.now.record.left if self.now.record is not None else 0.0


@dataclass(frozen=True, slots=True)
class RetryResult:
    """Result of the retry of one key; ``why`` is the cause, if there is one."""

    dead: DeadKey
    what: RetryOutcome
    why: str = ""


class DeadKeys:
    """The keys of a namespace with dead letters. redis-py's errors pass through."""

    def __init__(self, client: redis.Redis, settings: SharedSettings) -> None:
        self._client, self._settings = client, settings
        self._letters, self._store = DeadLetters(client, settings.namespace), LeaseStore(client)

    def all(self) -> list[DeadKey]:
        """Return all dead keys, latest failure first."""
        by_key: dict[tuple[str, int, str], list[DeadLetter]] = {}
        for letter in self._letters.newest():
            by_key.setdefault((letter.query, letter.version, letter.digest), []).append(letter)
        keys = [self._key(letters[0]) for letters in by_key.values()]
        return [
            DeadKey(key, letters[0], tuple(letters), now)
            for key, letters, now in zip(keys, by_key.values(), explain_keys(self._client, keys), strict=True)
        ]

    def drop(self, dead: DeadKey) -> bool:
        """Forget the key's failures: drop its letters and end any backoff. Returns whether a backoff was ended."""
        ended = dead.status in {KeyStatus.COOLING, KeyStatus.QUARANTINED} and self._end_backoff(dead.key)
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
        """Refresh keys now, even during a backoff, and wait at most ``wait_seconds`` for the results.

        The letters of refreshed keys are dropped; all others stay.

        Raises:
            CacheUnavailable, TriggerFailed: a permission is missing, as it would be for every key.
        """
        results = [self._trigger(dead, client) for dead in chosen]
        deadline, pause_seconds = monotonic() + wait_seconds, FIRST_PAUSE_SECONDS
        while any(result.what is RetryOutcome.PENDING for result in results) and monotonic() < deadline:
            sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, MAX_PAUSE_SECONDS)
            results = self._polled(results)
        for result in results:
            if result.what is RetryOutcome.REFRESHED:
                self._drop_letters(result.dead)
        return results

    def _trigger(self, dead: DeadKey, client: CacheClient) -> RetryResult:
        letter = dead.letter
        if letter.params is None:
            return RetryResult(dead, RetryOutcome.NOT_KEPT, "drop it, and the next reader triggers a refresh")
        try:
            state = client.refresh(letter.query, letter.params, version=letter.version)
        except CacheError as error:
            if is_forbidden(error.__cause__):
                raise
            return RetryResult(dead, RetryOutcome.REQUEST_FAILED, str(error))
        return RetryResult(dead, RetryOutcome.PENDING, "one is under way" if state is RefreshState.SUPPRESSED else "")

    def _polled(self, results: Iterable[RetryResult]) -> list[RetryResult]:
        """Return the results, after looking up pending ones again."""
        polled = list(results)
        pending = [number for number, result in enumerate(polled) if result.what is RetryOutcome.PENDING]
        explained = explain_keys(self._client, [polled[number].dead.key for number in pending])
        for number, now in zip(pending, explained, strict=True):
            before = polled[number].dead.now.token
            dead = replace(polled[number].dead, now=now)
            # A different token counts too: it need not be larger if Redis' clock was set back and the entry had gone.
            if dead.status is KeyStatus.REFRESHED or now.token not in {0, before}:
                polled[number] = RetryResult(dead, RetryOutcome.REFRESHED)
            elif dead.status in {KeyStatus.COOLING, KeyStatus.QUARANTINED} and now.record is not None:
                polled[number] = RetryResult(dead, RetryOutcome.FAILED_AGAIN, now.record.kind)
        return polled

    def _end_backoff(self, key: CacheKey) -> bool:
        """End a backoff and its count, by a forced claim that is taken back and leaves the key without a history."""
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
