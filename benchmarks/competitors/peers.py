"""Other caches, used as their documentation recommends, and redis-py itself: baselines and client-side cache."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final, cast
from unittest.mock import patch

import redis
import redis.asyncio
from redis.cache import CacheConfig
from redis.connection import CacheProxyConnection
from redis.utils import compare_versions

from benchmarks.apparatus.entries import QUERY, TTL_SECONDS, Seeder, Value, rows_of
from benchmarks.competitors.competitor import Competitor, Dataset, Opened
from benchmarks.competitors.connections import aiocache_server, configure_django
from benchmarks.competitors.ours import seed


def _name(number: int) -> str:
    return f"{QUERY}:{number}"


def _never(*_: object) -> Value:
    raise AssertionError("a hit was expected")


async def _cashews(dataset: Dataset, stack: AsyncExitStack, *, client_side: bool) -> Any:
    from cashews import Cache

    cache: Any = Cache()
    local = {"client_side": True, "client_side_prefix": f"{dataset.servers.namespace}:cashews-local:"}
    cache.setup(dataset.servers.cache_url, **(local if client_side else {}))
    await cache.init()
    stack.push_async_callback(cache.close)
    return cache


async def _cashews_early(dataset: Dataset, stack: AsyncExitStack, *, client_side: bool = False) -> Opened:
    """``@cache.early`` on Redis or its in-process tier, with pickle, its default."""
    cache = await _cashews(dataset, stack, client_side=client_side)
    values = {number: rows_of(number) for number in dataset.numbers}

    async def friends_of(person_id: int) -> Value:
        return values.pop(person_id)  # only once, since a second call is no hit and has to fail

    remembered = cache.early(
        ttl=TTL_SECONDS * 2,
        early_ttl=TTL_SECONDS,
        key=f"{QUERY}:{{person_id}}",
        prefix=f"{dataset.servers.namespace}:cashews:{client_side}",
    )(friends_of)
    for number in dataset.numbers:
        await remembered(number)
    return Opened(remembered)


async def _cashews_get(dataset: Dataset, stack: AsyncExitStack) -> Opened:
    """``cache.get`` on its in-process tier, without any decision."""
    cache = await _cashews(dataset, stack, client_side=True)
    for number in dataset.numbers:
        await cache.set(_name(number), rows_of(number), expire=TTL_SECONDS)
    return Opened(lambda number: cache.get(_name(number)))


async def _aiocache(dataset: Dataset, stack: AsyncExitStack) -> Opened:
    """``cache.get`` with JSON, the default of its Redis cache."""
    from aiocache import RedisCache

    servers = dataset.servers
    cache = RedisCache(**aiocache_server(servers.cache_url), namespace=f"{servers.namespace}:aiocache")
    stack.push_async_callback(cache.close)
    for number in dataset.numbers:
        await cache.set(_name(number), rows_of(number), ttl=int(TTL_SECONDS))
    return Opened(lambda number: cache.get(_name(number)))


def _dogpile(dataset: Dataset, stack: AsyncExitStack) -> Opened:
    """``region.get_or_create``, as in its documentation, with pickle, its default."""
    from dogpile.cache import make_region

    prefix = f"{dataset.servers.namespace}:dogpile:"
    region: Any = make_region(key_mangler=lambda key: prefix + key).configure(
        "dogpile.cache.redis",
        expiration_time=int(TTL_SECONDS),
        arguments={"url": dataset.servers.cache_url, "redis_expiration_time": int(TTL_SECONDS * 2)},
    )
    stack.callback(region.actual_backend.writer_client.close)
    for number in dataset.numbers:
        region.set(_name(number), rows_of(number))
    return Opened(lambda number: region.get_or_create(_name(number), _never))


def _django_redis(dataset: Dataset, stack: AsyncExitStack) -> Opened:
    """``cache.get`` with pickle, its default."""
    configure_django(dataset.servers.cache_url, f"{dataset.servers.namespace}:django")
    from django.core.cache import cache

    stack.callback(cache.close)
    for number in dataset.numbers:
        cache.set(_name(number), rows_of(number), timeout=TTL_SECONDS)
    # Django has a client for every thread, which `cache` looks up.
    return Opened(lambda number: cache.get(_name(number)))


def _django_cacheback(dataset: Dataset, stack: AsyncExitStack) -> Opened:
    """``Job.get`` on django-redis, whose values have their own expiry beside them."""
    configure_django(dataset.servers.cache_url, f"{dataset.servers.namespace}:django")
    from cacheback.base import Job

    class Friends(Job):  # type: ignore[misc, unused-ignore] # no type information is shipped
        lifetime = int(TTL_SECONDS)
        fetch = _never

    job: Any = Friends()
    stack.callback(job.cache.close)
    for number in dataset.numbers:
        job.set(number, rows_of(number))
    return Opened(job.get)


def _raw(dataset: Dataset, client: Any, note: str = "") -> Opened:
    """Store our entries, which a baseline reads undecoded, so that it reads the same bytes as our reader."""
    seed(dataset)
    with dataset.servers.plain() as plain:
        seeder = Seeder(plain, dataset.servers.namespace)
        keys = {number: seeder.key(number).entry for number in dataset.numbers}
        raw = {number: seeder.raw(number) for number in dataset.numbers}
    get = client.get
    return Opened(lambda number: get(keys[number]), raw.__getitem__, note)


def _redis_py(dataset: Dataset, stack: AsyncExitStack) -> Opened:
    return _raw(dataset, stack.enter_context(redis.Redis.from_url(dataset.servers.cache_url)))


def _redis_asyncio(dataset: Dataset, stack: AsyncExitStack) -> Opened:
    client = redis.asyncio.Redis.from_url(dataset.servers.cache_url)
    stack.push_async_callback(client.aclose)
    return _raw(dataset, client)


def _redis_py_client_side(dataset: Dataset, stack: AsyncExitStack) -> Opened:
    """redis-py's own in-process cache (RESP3, CLIENT TRACKING by key), even on a server that redis-py would refuse."""
    note, required = "", CacheProxyConnection.MIN_ALLOWED_VERSION
    with dataset.servers.plain() as plain:
        info = cast("dict[str, str]", plain.info("server"))
    name = info.get("server_name", CacheProxyConnection.DEFAULT_SERVER_NAME)
    if name != CacheProxyConnection.DEFAULT_SERVER_NAME or compare_versions(info["redis_version"], required) == 1:
        note = f"its check for Redis ≥ {required} is lifted"
        stack.enter_context(patch.multiple(CacheProxyConnection, MIN_ALLOWED_VERSION="6.0.0", DEFAULT_SERVER_NAME=name))
    config = CacheConfig(max_size=len(dataset.numbers) * 2)
    client = redis.Redis.from_url(dataset.servers.cache_url, protocol=3, cache_config=config)
    return _raw(dataset, stack.enter_context(client), note)


REDIS_PY: Final = Competitor("redis-py GET", _redis_py)
REDIS_ASYNCIO: Final = Competitor("redis.asyncio GET", _redis_asyncio, is_async=True)
REDIS_PY_CLIENT_SIDE: Final = Competitor("redis-py client-side cache", _redis_py_client_side, is_local=True)
DOGPILE: Final = Competitor("dogpile.cache", _dogpile)
DJANGO_REDIS: Final = Competitor("django-redis", _django_redis)
DJANGO_CACHEBACK: Final = Competitor("django-cacheback", _django_cacheback)
AIOCACHE: Final = Competitor("aiocache", _aiocache, is_async=True)
CASHEWS_EARLY: Final = Competitor("cashews early", _cashews_early, is_async=True)
CASHEWS_CLIENT_SIDE_EARLY: Final = Competitor(
    "cashews client_side early", partial(_cashews_early, client_side=True), is_async=True, is_local=True
)
CASHEWS_CLIENT_SIDE_GET: Final = Competitor("cashews client_side get", _cashews_get, is_async=True, is_local=True)
