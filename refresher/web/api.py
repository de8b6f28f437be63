"""Data behind the status page: current state, dead letters, retries."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from typing import Any, Final

from redis.exceptions import RedisError

from api_client.client import CacheClient
from api_client.config.settings import ReaderSettings
from api_client.errors import CacheError
from api_client.transport.redis_py import connect
from api_client.transport.wire import reason
from refresher.ops.dead_keys import DeadKey, DeadKeys
from refresher.ops.probe import CachedProbe, ProbeTimeout
from refresher.web.history import History

TIMEOUT_SECONDS: Final = 2.0
DEAD_SECONDS: Final = 6.0
DEAD_TTL_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 30.0
MAX_SHOWN: Final = 100
MAX_CHARACTERS: Final = 300


class StatusApi:
    """Serves the page's requests.

    Args:
        settings: the settings, with the addresses of cache and broker.
        history: the samples.
    """

    def __init__(self, settings: ReaderSettings, history: History) -> None:
        self._settings, self._history = settings, history
        self._dead = CachedProbe(self._dead_records, ttl_seconds=DEAD_TTL_SECONDS)

    def status(self, since: float) -> dict[str, Any]:
        """Return the latest sample, those taken after ``since`` for the plots, and the dead letters."""
        latest = self._history.latest
        letters, problem = self._letters()
        return {
            "status": asdict(latest) if latest is not None else None,
            "samples": self._history.since(since),
            "every": self._history.every_seconds,
            "letters": letters,
            "letters_problem": problem,
        }

    def retry(self, ids: Sequence[str]) -> list[dict[str, str]]:
        """Refresh keys by the ids of their dead letters, and return each result; wait at most half a minute.

        Raises:
            CacheError: cache or broker can't be used.
            redis.exceptions.RedisError: the cache can't be used.
        """
        with (
            closing(connect(self._settings.redis_url, timeout_seconds=TIMEOUT_SECONDS)) as client,
            CacheClient(self._settings) as reader,
        ):
            keys = DeadKeys(client, self._settings)
            wanted = set(ids)
            chosen = [dead for dead in keys.all() if dead.letter.id in wanted]
            results = keys.retry(chosen, reader, wait_seconds=RETRY_SECONDS)
        records = [{"id": one.dead.letter.id, "result": one.what.value, "why": one.why} for one in results]
        gone = wanted - {one["id"] for one in records}
        return records + [{"id": identifier, "result": "gone", "why": ""} for identifier in sorted(gone)]

    def _letters(self) -> tuple[list[dict[str, Any]], str]:
        try:
            return self._dead.result(DEAD_SECONDS), ""
        except ProbeTimeout:
            return [], f"the cache did not answer within {DEAD_SECONDS:g} s"
        except (CacheError, RedisError, OSError) as error:
            return [], f"the cache can't be queried: {reason(error)}"

    def _dead_records(self) -> list[dict[str, Any]]:
        with closing(connect(self._settings.redis_url, timeout_seconds=TIMEOUT_SECONDS)) as client:
            return [_record(dead) for dead in DeadKeys(client, self._settings).all()[:MAX_SHOWN]]


def _record(dead: DeadKey) -> dict[str, Any]:
    letter = dead.letter
    return {
        "id": letter.id,
        "query": letter.query,
        "key": dead.key.short,
        "kind": letter.kind,
        "message": None if letter.message is None else letter.message[:MAX_CHARACTERS],
        "params": letter.params is not None,
        "attempts": letter.attempts,
        "failures": letter.failures,
        "at": letter.at_us / 1e6,
        "state": dead.status.value,
        "left": dead.left_seconds,
    }
