"""django-redis, and django-cacheback on top of it. Django is configured here, without a project."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from benchmarks.contenders.contender import Course, SyncContender
from benchmarks.payloads import Value
from benchmarks.seeding import QUERY, TTL_SECONDS


class DjangoRedis(SyncContender):
    """``cache.get``; pickle, its default."""

    title = "django-redis"
    needs: ClassVar[tuple[str, ...]] = ("django", "django_redis")

    def set_up(self) -> None:
        _configure(self.course)
        from django.core.cache import cache

        self._cache = cache
        for number in self.course.numbers:
            cache.set(f"{QUERY}:{number}", self.course.value_of(number), timeout=TTL_SECONDS)

    def reader(self) -> Callable[[int], Value]:
        # Django hands a client of its own to every thread; `cache` looks it up.
        get = self._cache.get
        return lambda number: get(f"{QUERY}:{number}")

    def close(self) -> None:
        self._cache.close()


class DjangoCacheback(SyncContender):
    """``Job.get`` on django-redis: a hit with its own expiry beside the value."""

    title = "django-cacheback"
    needs: ClassVar[tuple[str, ...]] = ("django", "django_redis", "cacheback")

    def set_up(self) -> None:
        _configure(self.course)
        from cacheback.base import Job

        class Friends(Job):  # type: ignore[misc, unused-ignore] # no type information is shipped
            lifetime = int(TTL_SECONDS)

            def fetch(self, number: int) -> Value:
                raise AssertionError("a hit was expected")

        self._job: Any = Friends()
        for number in self.course.numbers:
            self._job.set(number, self.course.value_of(number))

    def reader(self) -> Callable[[int], Value]:
        get: Callable[[int], Value] = self._job.get
        return get

    def close(self) -> None:
        self._job.cache.close()


def _configure(course: Course) -> None:
    from django.conf import settings

    caches = {
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": course.place.cache_url,
            "KEY_PREFIX": f"{course.place.namespace}:django",
        }
    }
    if not settings.configured:
        settings.configure(CACHES=caches)
