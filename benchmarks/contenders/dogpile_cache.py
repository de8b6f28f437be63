"""dogpile.cache on its Redis backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from benchmarks.contenders.contender import SyncContender
from benchmarks.payloads import Value
from benchmarks.seeding import QUERY, TTL_SECONDS


class DogpileCache(SyncContender):
    """``region.get_or_create``, as its documentation has it; pickle, its default."""

    title = "dogpile.cache"
    needs: ClassVar[tuple[str, ...]] = ("dogpile",)

    def set_up(self) -> None:
        from dogpile.cache import make_region

        prefix = f"{self.course.place.namespace}:dogpile:"
        self._region = make_region(key_mangler=lambda key: prefix + key).configure(
            "dogpile.cache.redis",
            expiration_time=int(TTL_SECONDS),
            arguments={"url": self.course.place.cache_url, "redis_expiration_time": int(TTL_SECONDS * 2)},
        )
        for number in self.course.numbers:
            self._region.set(f"{QUERY}:{number}", self.course.value_of(number))

    def reader(self) -> Callable[[int], Value]:
        get_or_create = self._region.get_or_create
        return lambda number: get_or_create(f"{QUERY}:{number}", _never)

    def close(self) -> None:
        client: Any = self._region.actual_backend.writer_client
        client.close()


def _never() -> Value:
    raise AssertionError("a hit was expected")
