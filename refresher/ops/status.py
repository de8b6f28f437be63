"""The state of cache, queues and workers, probed side by side, so that none holds up the others.

Nothing here is estimated. Unknown parts are missing, with the reason.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from api_client.config.environment import without_password
from api_client.config.settings import SharedSettings
from api_client.transport.redis_py import connect
from api_client.trigger.broker import fault_text
from refresher.feed.state import FeedState, read_state
from refresher.ops.broker import Queues, WorkerSeen, broker_place, queue_lengths, running_workers
from refresher.ops.dead_keys import DeadKeys, KeyStatus
from refresher.ops.probe import CachedProbe, ProbeTimeout
from refresher.ops.scan import DEFAULT_MAX_KEYS, KeysSeen, scan_keys

T = TypeVar("T")

TIMEOUT_SECONDS: Final = 2.0
CACHE_SECONDS: Final = 6.0
BROKER_SECONDS: Final = 4.0
WORKERS_SECONDS: Final = 8.0
WORKERS_TTL_SECONDS: Final = 10.0
"""Time for which a polling caller reuses the workers' replies."""


@dataclass(frozen=True, slots=True)
class DeadSeen:
    """Dead keys by query: those not refreshed since, and those of them in quarantine."""

    open: Mapping[str, int] = field(default_factory=dict)
    quarantined: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Status:
    """One sample. A part is None if it could not be probed; ``problems`` has the reason, by part.

    ``at`` is in seconds since 1970, by this machine's clock. ``feed`` is also None if it is off.
    """

    at: float
    keys: KeysSeen | None
    dead: DeadSeen | None
    queues: Queues | None
    workers: list[WorkerSeen] | None
    problems: dict[str, str]
    feed: FeedState | None = None

    @property
    def is_whole(self) -> bool:
        """True if cache and broker replied. Probing workers may be forbidden, or there may be none."""
        return not self.problems.keys() & {"keys", "dead", "queues"}


class StatusPoller:
    """Samples the state repeatedly; a probe that hangs is not started again before it has ended.

    Args:
        settings: the settings, with the addresses of cache and broker.
        max_keys: the approximate number of keys to scan each time.
        workers_ttl_seconds: the time for which the workers' replies are reused; they take a second or two.
    """

    def __init__(
        self, settings: SharedSettings, *, max_keys: int = DEFAULT_MAX_KEYS, workers_ttl_seconds: float = 0.0
    ) -> None:
        self._settings = settings
        self._keys = CachedProbe(
            lambda: self._of_cache(lambda client: scan_keys(client, settings.namespace, max_keys=max_keys))
        )
        self._dead = CachedProbe(lambda: self._of_cache(lambda client: _dead(DeadKeys(client, settings))))
        self._feed = CachedProbe(lambda: self._of_cache(lambda client: read_state(client, settings.namespace)))
        self._queues = CachedProbe(lambda: queue_lengths(settings))
        self._workers = CachedProbe(lambda: running_workers(settings), ttl_seconds=workers_ttl_seconds)

    def poll(self) -> Status:
        """Return the present state; takes at most 8 s, and 1 to 2 s if all is well."""
        for probe in (self._keys, self._dead, self._feed, self._queues, self._workers):
            probe.start()
        problems: dict[str, str] = {}
        return Status(
            at=time.time(),
            keys=self._result("keys", self._keys, CACHE_SECONDS, problems),
            dead=self._result("dead", self._dead, CACHE_SECONDS, problems),
            queues=self._result("queues", self._queues, BROKER_SECONDS, problems),
            workers=self._result("workers", self._workers, WORKERS_SECONDS, problems),
            feed=self._result("feed", self._feed, CACHE_SECONDS, problems),
            problems=problems,
        )

    def _of_cache(self, probe: Callable[[Any], T]) -> T:
        with closing(connect(self._settings.redis_url, timeout_seconds=TIMEOUT_SECONDS)) as client:
            return probe(client)

    def _result(self, part: str, probe: CachedProbe[T], timeout: float, problems: dict[str, str]) -> T | None:
        try:
            return probe.result(timeout)
        except ProbeTimeout:
            problems[part] = f"{self._place(part)} did not answer within {timeout:g} s"
        except Exception as error:  # noqa: BLE001 - whatever cache and broker raise
            problems[part] = f"{self._place(part)} can't be queried: {fault_text(error)}"
        return None

    def _place(self, part: str) -> str:
        if part in {"keys", "dead", "feed"}:
            return f"the cache at CACHE_REDIS_URL={without_password(self._settings.redis_url)}"
        what = "the broker" if part == "queues" else "the workers of the broker"
        return f"{what} at {broker_place(self._settings)}"


def _dead(dead_keys: DeadKeys) -> DeadSeen:
    keys = [(dead.letter.query, dead.status) for dead in dead_keys.all()]
    return DeadSeen(
        open=dict(Counter(query for query, status in keys if status is not KeyStatus.REFRESHED)),
        quarantined=dict(Counter(query for query, status in keys if status is KeyStatus.QUARANTINED)),
    )
