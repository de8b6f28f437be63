"""How the cache, its queues and its workers stand now: asked side by side, none of them holds up the others.

Nothing here is estimated. What can't be known is missing, and it is said why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from redis.exceptions import RedisError

from api_client.config.environment import without_password
from api_client.config.settings import SharedSettings
from api_client.transport.redis_py import connect, reason
from refresher.ops.broker import Queues, WorkerSeen, queues_of, workers_of
from refresher.ops.dead_keys import DeadKeys, KeyStatus
from refresher.ops.probe import Asked, ProbeTimeout
from refresher.ops.scan import DEFAULT_MOST_KEYS, KeysSeen, look_at_keys

T = TypeVar("T")

TIMEOUT_SECONDS: Final = 2.0
CACHE_SECONDS: Final = 6.0
BROKER_SECONDS: Final = 4.0
WORKERS_SECONDS: Final = 8.0
WORKERS_KEPT_SECONDS: Final = 10.0
"""For how long the workers' answer stands where things are looked at again and again."""


@dataclass(frozen=True, slots=True)
class DeadSeen:
    """Keys that were given up, by query: those that are not refreshed since, and of them those in quarantine."""

    open: Mapping[str, int] = field(default_factory=dict)
    quarantined: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Status:
    """One moment. A part is None where it could not be asked; ``problems`` says why, by part.

    ``at`` is in seconds since 1970, by this machine's clock.
    """

    at: float
    keys: KeysSeen | None
    dead: DeadSeen | None
    queues: Queues | None
    workers: list[WorkerSeen] | None
    problems: dict[str, str]

    @property
    def is_whole(self) -> bool:
        """Whether cache and broker could be asked. Workers may be forbidden to ask, and none may be there."""
        return not self.problems.keys() & {"keys", "dead", "queues"}


class Watcher:
    """Looks again and again. What hangs is not asked a second time before it has answered or failed.

    Args:
        settings: where cache and broker are.
        most_keys: about how many keys to look at, each time.
        workers_kept_seconds: for how long the workers' answer stands; it takes a second or two.
    """

    def __init__(
        self, settings: SharedSettings, *, most_keys: int = DEFAULT_MOST_KEYS, workers_kept_seconds: float = 0.0
    ) -> None:
        self._settings = settings
        self._keys = Asked(
            lambda: self._of_cache(lambda client: look_at_keys(client, settings.namespace, most_keys=most_keys))
        )
        self._dead = Asked(lambda: self._of_cache(lambda client: _dead(DeadKeys(client, settings))))
        self._queues = Asked(lambda: queues_of(settings))
        self._workers = Asked(lambda: workers_of(settings), kept_seconds=workers_kept_seconds)

    def look(self) -> Status:
        """Return how things stand now; takes 8 s at most, and 1 to 2 s where all is well."""
        for part in (self._keys, self._dead, self._queues, self._workers):
            part.begin()
        problems: dict[str, str] = {}
        return Status(
            at=time.time(),
            keys=self._told("keys", self._keys, CACHE_SECONDS, problems),
            dead=self._told("dead", self._dead, CACHE_SECONDS, problems),
            queues=self._told("queues", self._queues, BROKER_SECONDS, problems),
            workers=self._told("workers", self._workers, WORKERS_SECONDS, problems),
            problems=problems,
        )

    def _of_cache(self, ask: Callable[[Any], T]) -> T:
        with closing(connect(self._settings.redis_url, timeout_seconds=TIMEOUT_SECONDS)) as client:
            return ask(client)

    def _told(self, part: str, asked: Asked[T], seconds: float, problems: dict[str, str]) -> T | None:
        try:
            return asked.within(seconds)
        except ProbeTimeout:
            problems[part] = f"{self._place(part)} did not answer within {seconds:g} s"
        except Exception as error:  # noqa: BLE001 - whatever cache and broker raise
            problems[part] = f"{self._place(part)} can't be asked: {_why(error)}"
        return None

    def _place(self, part: str) -> str:
        if part in {"keys", "dead"}:
            return f"the cache at CACHE_REDIS_URL={without_password(self._settings.redis_url)}"
        what = "the broker" if part == "queues" else "the workers of the broker"
        return f"{what} at CACHE_BROKER_URL={without_password(self._settings.broker_url)}"


def _why(error: Exception) -> str:
    # kombu wraps what a transport raises.
    cause = error.__cause__ or error
    if isinstance(cause, RedisError | OSError):
        return reason(cause)
    return type(cause).__name__


def _dead(dead_keys: DeadKeys) -> DeadSeen:
    open_, quarantined = dict[str, int](), dict[str, int]()
    for dead in dead_keys.all():
        query = dead.letter.query
        if dead.standing is not KeyStatus.REFRESHED:
            open_[query] = open_.get(query, 0) + 1
        if dead.standing is KeyStatus.QUARANTINED:
            quarantined[query] = quarantined.get(query, 0) + 1
    return DeadSeen(open_, quarantined)
