"""Addresses of servers: loopback names, and a Redis URL with the password of the environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlsplit

LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


def with_password(url: str, environ: Mapping[str, str]) -> str:
    """Return a Redis URL with REDIS_PASSWORD as its password; unchanged without that variable."""
    password = environ.get("REDIS_PASSWORD", "")
    if not password:
        return url
    parts = urlsplit(url)
    user, host = quote(parts.username or "", safe=""), parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{user}:{quote(password, safe='')}@{host}").geturl()
