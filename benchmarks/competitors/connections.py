"""Connection arguments of caches that do not take a URL."""

from __future__ import annotations

from typing import Any

from redis import ConnectionPool


def aiocache_server(url: str) -> dict[str, Any]:
    """Return aiocache's arguments for a Redis."""
    parts = ConnectionPool.from_url(url).connection_kwargs
    return {
        "endpoint": parts["host"], "port": parts["port"], "db": parts.get("db", 0), "password": parts.get("password"),
    }  # fmt: skip


def configure_django(url: str, prefix: str, options: dict[str, Any] | None = None, **settings: Any) -> None:
    """Configure Django with one cache, django-redis, once per process."""
    from django.conf import settings as django_settings

    cache = {
        "BACKEND": "django_redis.cache.RedisCache", "LOCATION": url, "KEY_PREFIX": prefix, "OPTIONS": options or {},
    }  # fmt: skip
    if not django_settings.configured:
        django_settings.configure(CACHES={"default": cache}, **settings)
