"""Other caches, each as its documentation recommends, and redis-py itself: the baselines, and its client-side cache."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar

import redis
import redis.asyncio
from redis.asyncio import ConnectionPool
from redis.cache import CacheConfig
from redis.connection import CacheProxyConnection

from benchmarks.apparatus.entries import QUERY, TTL_SECONDS, Seeder, Value, rows_of
from benchmarks.competitors.competitor import Competitor, Dataset
from benchmarks.competitors.ours import seed


class _Cashews(Competitor):
    is_async = True
    needs: ClassVar[tuple[str, ...]] = ("cashews",)
    client_side: ClassVar[bool] = False

    async def set_up(self) -> None:
        from cashews import Cache

        self._cache = Cache()
        if self.client_side:
            prefix = f"{self.dataset.servers.namespace}:cashews-local:"
            self._cache.setup(self.dataset.servers.cache_url, client_side=True, client_side_prefix=prefix)
        else:
            self._cache.setup(self.dataset.servers.cache_url)
        await self._cache.init()
        await self._fill()

    @abstractmethod
    async def _fill(self) -> None:
        """Put a value under every number."""

    async def close(self) -> None:
        await self._cache.close()


class CashewsEarly(_Cashews):
    """``@cache.early`` on Redis; pickle, its default."""

    title = "cashews early"

    async def _fill(self) -> None:
        values = {number: rows_of(number) for number in self.dataset.numbers}

        async def friends_of(person_id: int) -> Value:
            return values.pop(person_id)  # once: a second call is no hit, and fails

        remembered = self._cache.early(
            ttl=TTL_SECONDS * 2,
            early_ttl=TTL_SECONDS,
            key=f"{QUERY}:{{person_id}}",
            prefix=f"{self.dataset.servers.namespace}:cashews:{type(self).__name__}",
        )
        self._friends_of: Any = remembered(friends_of)
        for number in self.dataset.numbers:
            await self._friends_of(number)

    def reader(self) -> Callable[[int], Any]:
        friends_of: Callable[[int], Any] = self._friends_of
        return friends_of


class CashewsClientSideEarly(CashewsEarly):
    """``@cache.early`` on its in-process tier."""

    title = "cashews client_side early"
    is_local = True
    client_side = True


class CashewsClientSideGet(_Cashews):
    """``cache.get`` on its in-process tier: no decision at all."""

    title = "cashews client_side get"
    is_local = True
    client_side = True

    async def _fill(self) -> None:
        for number in self.dataset.numbers:
            await self._cache.set(f"{QUERY}:{number}", rows_of(number), expire=TTL_SECONDS)

    def reader(self) -> Callable[[int], Any]:
        get = self._cache.get
        return lambda number: get(f"{QUERY}:{number}")


class Aiocache(Competitor):
    """``cache.get``; JSON, the default of its Redis cache."""

    is_async = True
    title = "aiocache"
    needs: ClassVar[tuple[str, ...]] = ("aiocache",)

    async def set_up(self) -> None:
        from aiocache import RedisCache

        parts = ConnectionPool.from_url(self.dataset.servers.cache_url).connection_kwargs  # it takes no URL
        self._cache = RedisCache(
            endpoint=parts["host"],
            port=parts["port"],
            db=parts.get("db", 0),
            password=parts.get("password"),
            namespace=f"{self.dataset.servers.namespace}:aiocache",
        )
        for number in self.dataset.numbers:
            await self._cache.set(f"{QUERY}:{number}", rows_of(number), ttl=int(TTL_SECONDS))

    def reader(self) -> Callable[[int], Any]:
        get = self._cache.get
        return lambda number: get(f"{QUERY}:{number}")

    async def close(self) -> None:
        await self._cache.close()


class DogpileCache(Competitor):
    """``region.get_or_create``, as its documentation has it; pickle, its default."""

    title = "dogpile.cache"
    needs: ClassVar[tuple[str, ...]] = ("dogpile",)

    def set_up(self) -> None:
        from dogpile.cache import make_region

        prefix = f"{self.dataset.servers.namespace}:dogpile:"
        self._region = make_region(key_mangler=lambda key: prefix + key).configure(
            "dogpile.cache.redis",
            expiration_time=int(TTL_SECONDS),
            arguments={"url": self.dataset.servers.cache_url, "redis_expiration_time": int(TTL_SECONDS * 2)},
        )
        for number in self.dataset.numbers:
            self._region.set(f"{QUERY}:{number}", rows_of(number))

    def reader(self) -> Callable[[int], Any]:
        get_or_create = self._region.get_or_create
        return lambda number: get_or_create(f"{QUERY}:{number}", _never)

    def close(self) -> None:
        client: Any = self._region.actual_backend.writer_client
        client.close()


def _never() -> Value:
    raise AssertionError("a hit was expected")


class DjangoRedis(Competitor):
    """``cache.get``; pickle, its default."""

    title = "django-redis"
    needs: ClassVar[tuple[str, ...]] = ("django", "django_redis")

    def set_up(self) -> None:
        _configure(self.dataset)
        from django.core.cache import cache

        self._cache = cache
        for number in self.dataset.numbers:
            cache.set(f"{QUERY}:{number}", rows_of(number), timeout=TTL_SECONDS)

    def reader(self) -> Callable[[int], Any]:
        # Django hands a client of its own to every thread; `cache` looks it up.
        get = self._cache.get
        return lambda number: get(f"{QUERY}:{number}")

    def close(self) -> None:
        self._cache.close()


class DjangoCacheback(Competitor):
    """``Job.get`` on django-redis: a hit with its own expiry beside the value."""

    title = "django-cacheback"
    needs: ClassVar[tuple[str, ...]] = ("django", "django_redis", "cacheback")

    def set_up(self) -> None:
        _configure(self.dataset)
        from cacheback.base import Job

        class Friends(Job):  # type: ignore[misc, unused-ignore] # no type information is shipped
            lifetime = int(TTL_SECONDS)

            def fetch(self, number: int) -> Value:
                raise AssertionError("a hit was expected")

        self._job: Any = Friends()
        for number in self.dataset.numbers:
            self._job.set(number, rows_of(number))

    def reader(self) -> Callable[[int], Any]:
        get: Callable[[int], Any] = self._job.get
        return get

    def close(self) -> None:
        self._job.cache.close()


def _configure(dataset: Dataset) -> None:
    from django.conf import settings

    caches = {
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": dataset.servers.cache_url,
            "KEY_PREFIX": f"{dataset.servers.namespace}:django",
        }
    }
    if not settings.configured:
        settings.configure(CACHES=caches)


class RedisPyGet(Competitor):
    """The baseline of the sync modes: one client, its default pool."""

    title = "redis-py GET"
    client: ClassVar[Any] = redis.Redis

    def set_up(self) -> None:
        self._put_entries()
        self._client = self.client.from_url(self.dataset.servers.cache_url)

    def _put_entries(self) -> None:
        """Put our entries, to be read as they stand: what a baseline reads is what our reader reads."""
        seed(self.dataset)
        with self.dataset.servers.plain() as client:
            seeder = Seeder(client, self.dataset.servers.namespace)
            self._keys = {number: seeder.key(number).entry for number in self.dataset.numbers}
            self._raw = {number: seeder.raw(number) for number in self.dataset.numbers}

    def reader(self) -> Callable[[int], Any]:
        get, keys = self._client.get, self._keys
        return lambda number: get(keys[number])

    def expected(self, number: int) -> Value:
        return self._raw[number]

    def close(self) -> Any:
        return self._client.close()


class RedisPyClientSideCache(RedisPyGet):
    """redis-py's own in-process cache (RESP3, CLIENT TRACKING by key)."""

    title = "redis-py client-side cache"
    is_local = True

    def set_up(self) -> None:
        self._put_entries()
        self._lifted = ExitStack()
        if _is_older(self.dataset.servers.version, CacheProxyConnection.MIN_ALLOWED_VERSION):
            self.note = f"its check for Redis ≥ {CacheProxyConnection.MIN_ALLOWED_VERSION} is lifted"
            self._lifted.enter_context(_check_lifted())
        most = len(self.dataset.numbers) * 2
        self._client = redis.Redis.from_url(
            self.dataset.servers.cache_url, protocol=3, cache_config=CacheConfig(max_size=most)
        )

    def close(self) -> None:
        super().close()
        self._lifted.close()


class RedisAsyncioGet(RedisPyGet):
    """The baseline of the async modes: one client, its default pool."""

    title = "redis.asyncio GET"
    is_async = True
    client: ClassVar[Any] = redis.asyncio.Redis

    def close(self) -> Any:
        return self._client.aclose()


@contextmanager
def _check_lifted() -> Iterator[None]:
    """Let redis-py's cache work on a Redis that has what it needs (6.0), though redis-py asks for a later one."""
    required = CacheProxyConnection.MIN_ALLOWED_VERSION
    CacheProxyConnection.MIN_ALLOWED_VERSION = "6.0.0"
    try:
        yield
    finally:
        CacheProxyConnection.MIN_ALLOWED_VERSION = required


def _is_older(version: str, than: str) -> bool:
    return [int(part) for part in version.split(".")[:3]] < [int(part) for part in than.split(".")]
