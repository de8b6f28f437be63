"""Memory cost of an entry in Redis."""

from __future__ import annotations

from statistics import fmean
from typing import Final, cast

import redis

from benchmarks.apparatus.entries import QUERY, Seeder, payload_of, rows_of
from benchmarks.apparatus.servers import Servers
from benchmarks.hits.options import HitsOptions
from benchmarks.reports.results import Must, Result, Target, figure
from refresher.testing import InlineCache

_SIZES: Final = range(512, 1_536, 8)
_REFRESHED: Final = 50


def measured_memory(servers: Servers, _: HitsOptions) -> Result:
    """Measure MEMORY USAGE of entries against plain keys with the same payloads, over a range of sizes.

    A range is needed because Redis' allocator rounds up: between two steps a header costs nothing, at a step 256 bytes.
    The keys are counted after refreshes by the real flow, including any leftovers.
    """
    with servers.plain() as client:
        used, length = _bytes_over_plain(client, servers.namespace)
    most = Target(Must.AT_MOST, 100)
    sizes = f"mean over payloads of {_SIZES[0]} to {_SIZES[-1]} bytes"
    figures = [
        figure(
            "an entry over a plain SET of its payload, same key: MEMORY USAGE", (used,), "bytes",
            most, f"{sizes}; with what the allocator rounds up",
        ),
        figure("the same: STRLEN", (length,), "bytes", most, sizes),
        figure("keys at rest per entry", (_keys_at_rest(servers),), "", Target(Must.BE, 1)),
    ]  # fmt: skip
    return Result("memory", "what an entry costs in Redis", figures)


def _bytes_over_plain(client: redis.Redis, namespace: str) -> tuple[float, float]:
    seeder = Seeder(client, namespace, lambda size: "x" * size)
    seeder.put(_SIZES)
    used, length = [], []
    for size in _SIZES:
        key, payload = seeder.key(size).entry, payload_of("x" * size)
        entry_used, entry_length = _usage(client, key), client.strlen(key)
        client.set(key, payload, ex=3_600)
        used.append(entry_used - _usage(client, key))
        length.append(entry_length - len(payload))
        client.unlink(key)
    return fmean(used), fmean(length)


def _usage(client: redis.Redis, key: str) -> int:
    return cast("int", client.memory_usage(key, samples=0))


def _keys_at_rest(servers: Servers) -> float:
    with InlineCache(redis_url=servers.cache_url) as cache, servers.plain() as client:
        cache.answer(QUERY, rows_of, ttl="5m", grace="1h")
        for number in range(_REFRESHED):
            cache.client.get(QUERY, {"number": number})
        cache.advance("6m")
        for number in range(_REFRESHED):
            cache.client.get(QUERY, {"number": number})
        # Only those of entries, since the query has a key of its own, however many entries it has.
        of_entries = f"{cache.client.settings.namespace}:*{{{QUERY}:*"
        keys = sum(1 for _ in client.scan_iter(match=of_entries, count=1_000))
    return keys / _REFRESHED
