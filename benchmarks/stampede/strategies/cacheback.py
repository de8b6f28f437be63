"""django-cacheback on django-redis, with a Celery worker of its own."""

from __future__ import annotations

from typing import ClassVar

from benchmarks.stampede.strategies.strategy import SyncCache, SyncStrategy, Value


class Cacheback(SyncStrategy):
    """Who finds a stale value writes it back as fresh for a while, and sends a task that recomputes."""

    name = "cacheback"
    title = "django-cacheback"
    needs: ClassVar[tuple[str, ...]] = ("django", "django_redis", "cacheback")
    is_peer = True
    unseen: ClassVar[tuple[str, ...]] = ("contention", "ducked_out")
    cannot = (
        "Looking and writing back are two steps, so that readers of one moment send a task each. A miss is computed "
        "by each reader that meets it."
    )

    def on_threads(self) -> SyncCache:
        """Configure Django and Celery for this process."""
        from benchmarks.stampede.cacheback_job import configured_job

        return _Cacheback(configured_job(self.terms, self.lane))


class _Cacheback(SyncCache):
    def __init__(self, job: type) -> None:
        self._job = job

    def read(self, number: int) -> Value:
        value: Value = self._job().get(number)
        return value

    def close(self) -> None:
        self._job().cache.close()
