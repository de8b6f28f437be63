"""What an entry costs in Redis beside its payload: bytes, and keys at rest."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import Final, cast

import redis

from benchmarks.figures import Figure, Must, Result, Target
from benchmarks.hits.group import Group, Setting
from benchmarks.seeding import QUERY, Seeder, payload_of
from refresher.testing import InlineCache

_SIZES: Final = range(512, 1_536, 8)
_REFRESHED: Final = 50


@dataclass(frozen=True, slots=True)
class Memory(Group):
    """MEMORY USAGE of entries against plain keys with the same payloads, over a range of sizes.

    Over a range, because Redis' allocator rounds up: between two steps a header costs nothing, at a step it costs 256
    bytes.
    """

    def run(self, setting: Setting) -> Result:
        """Measure; the keys are counted after refreshes by the real flow, with what was left behind."""
        with setting.place.plain() as client:
            used, length, used_short = _bytes_over_plain(client, setting)
        most = Target(Must.AT_MOST, 100)
        sizes = f"mean over payloads of {_SIZES[0]} to {_SIZES[-1]} bytes"
        figures = (
            Figure(
                self.name, "an entry over a plain SET of its payload, same key: MEMORY USAGE", (used,), "bytes",
                most, f"{sizes}; with what the allocator rounds up",
            ),
            Figure(self.name, "the same: STRLEN", (length,), "bytes", most, sizes),
            Figure(
                self.name, f"over a plain SET under {QUERY}:NUMBER: MEMORY USAGE", (used_short,), "bytes",
                note=f"{sizes}; a key here carries namespace, query and digest",
            ),
            Figure(self.name, "keys at rest per entry", (_keys_at_rest(setting),), "", Target(Must.BE, 1)),
        )  # fmt: skip
        return Result(self.name, self.title, figures=figures)


def _bytes_over_plain(client: redis.Redis, setting: Setting) -> tuple[float, float, float]:
    seeder = Seeder(client, setting.place.namespace, lambda size: "x" * size)
    seeder.put(_SIZES)
    used, length, used_short = [], [], []
    for size in _SIZES:
        key, short = seeder.key(size).entry, f"{setting.place.namespace}:{QUERY}:{size}"
        payload = payload_of("x" * size)
        entry_used, entry_length = _usage(client, key), client.strlen(key)
        for plain in (key, short):
            client.set(plain, payload, ex=3_600)
        used.append(entry_used - _usage(client, key))
        length.append(entry_length - len(payload))
        used_short.append(entry_used - _usage(client, short))
        client.unlink(key, short)
    return fmean(used), fmean(length), fmean(used_short)


def _usage(client: redis.Redis, key: str) -> int:
    return cast("int", client.memory_usage(key, samples=0))


def _keys_at_rest(setting: Setting) -> float:
    with InlineCache(redis_url=setting.place.cache_url) as cache, setting.place.plain() as client:
        cache.answer(QUERY, setting.value_of, ttl="5m", grace="1h")
        for number in range(_REFRESHED):
            cache.client.get(QUERY, {"number": number})
        cache.advance("6m")
        for number in range(_REFRESHED):
            cache.client.get(QUERY, {"number": number})
        keys = sum(1 for _ in client.scan_iter(match=f"{cache.client.settings.namespace}*", count=1_000))
    return keys / _REFRESHED
