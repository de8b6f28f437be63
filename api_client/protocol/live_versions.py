"""Live versions of a query: workers register the versions whose entries can exist, so an invalidation reaches them all.

::

    worker   register ──▶ acquire ──▶ load ──▶ commit          (renewed every few seconds)
    writer   write to the graph ──▶ versions ──▶ invalidate each

A version that the writer does not find was registered later, so its first load began after the write.

Workers register their loaders there too: batch loaders, for publishers, and the params that a loader takes, for workers
that can't load the version themselves.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Final, TypeAlias

from api_client.errors import CacheError
from api_client.protocol.keys import MAX_VERSION, CacheKey, key_of_version, versions_key
from api_client.protocol.lease import Call, invalidate

MAX_QUERIES_REMEMBERED: Final = 4_096
_BATCHED, _TAKES = "batched:", "takes:"

Rounds: TypeAlias = Generator[Sequence[Call[Any]], Sequence[Any], dict[int, int]]
"""Yields the calls of one round trip at a time, is sent their replies, and returns each version's generation."""


def register(namespace: str, query: str, version: int, *, lives_seconds: float) -> Call[int]:
    """Register that entries of a version can exist, for at least ``lives_seconds`` from now."""
    return _register(namespace, query, version, lives_seconds)


def read_versions(namespace: str, query: str) -> Call[frozenset[int]]:
    """Return the call that reads the registered versions."""
    return Call("versions", (versions_key(namespace, query),), (), versions_of)


def loader_of(version: int, takes: str | None) -> str:
    """Return the text that describes a version's loader: it takes these params, or with None several calls at once."""
    return f"{_BATCHED}{version}" if takes is None else f"{_TAKES}{version}:{takes}"


def register_loader(namespace: str, query: str, loader: str, *, lives_seconds: float) -> Call[int]:
    """Register that a live worker has this loader, for the next ``lives_seconds``."""
    return _register(namespace, query, loader, lives_seconds)


def read_loaders(namespace: str, query: str, version: int) -> Call[frozenset[str]]:
    """Return the call that reads the loaders of live workers for a version."""
    batched, takes = loader_of(version, None), loader_of(version, "")

    def loaders(members: Sequence[bytes]) -> frozenset[str]:
        texts = [member.decode(errors="replace") for member in members]
        return frozenset(text for text in texts if text == batched or text.startswith(takes))

    return Call("versions", (versions_key(namespace, query),), (), loaders)


def versions_of(members: Sequence[bytes]) -> frozenset[int]:
    """Return the versions among the registered members of a query."""
    # Other members of the set are not versions.
    found = (int(member) for member in members if member.isdigit() and len(member) <= len(str(MAX_VERSION)))
    return frozenset(version for version in found if 1 <= version <= MAX_VERSION)


def batched_versions(members: Sequence[bytes]) -> frozenset[int]:
    """Return the versions with batch loaders among the registered members of a query."""
    prefix = _BATCHED.encode()
    return versions_of([member.removeprefix(prefix) for member in members if member.startswith(prefix)])


class KnownVersions:
    """The versions of each query that a process saw last, so that most invalidations take one round trip."""

    def __init__(self) -> None:
        self._seen: dict[str, frozenset[int]] = {}

    def of(self, query: str) -> frozenset[int]:
        """Return the versions that were registered when the query was last invalidated."""
        return self._seen.get(query, frozenset())

    def remember(self, query: str, registered: frozenset[int]) -> None:
        """Remember the versions that are registered now."""
        if len(self._seen) >= MAX_QUERIES_REMEMBERED:
            self._seen.clear()
        self._seen[query] = registered


class VersionedInvalidation:
    """One invalidation of a key, in all live versions or in one. No I/O of its own.

    Args:
        key: the key in the caller's own version, which is always invalidated.
        known: the versions known to this process; None to invalidate only the key's own version.
        hard, bookmarks, retention_seconds: as for `lease.invalidate`.

    Attributes:
        keys: the keys for which calls were made, even if their replies are missing.
    """

    def __init__(
        self,
        key: CacheKey,
        known: KnownVersions | None,
        *,
        hard: bool,
        bookmarks: Sequence[str],
        retention_seconds: float,
    ) -> None:
        self._key, self._known = key, known
        self._hard, self._bookmarks, self._retention_seconds = hard, bookmarks, retention_seconds
        self.keys: list[CacheKey] = []

    def call(self, version: int) -> Call[int]:
        """Return the call that invalidates one version."""
        own = self._key
        key = own if version == own.version else key_of_version(own, version)
        self.keys.append(key)
        return invalidate(key, hard=self._hard, bookmarks=self._bookmarks, retention_seconds=self._retention_seconds)

    def rounds(self) -> Rounds:
        """Invalidate the known versions in the round trip that reads the registered ones, then any new ones."""
        own, known = self._key, self._known
        if known is None:
            return dict(zip([own.version], (yield [self.call(own.version)]), strict=True))
        first = sorted({own.version, *known.of(own.query)})
        *numbers, registered = yield [*map(self.call, first), read_versions(own.namespace, own.query)]
        generations = dict(zip(first, numbers, strict=True))
        known.remember(own.query, registered)
        if new := sorted(registered - generations.keys()):
            generations |= zip(new, (yield [self.call(version) for version in new]), strict=True)
        return generations


def invalidate_together(invalidations: Sequence[Rounds]) -> Generator[Sequence[Call[Any]], Sequence[Any], list[Any]]:
    """Run several invalidations side by side: yield the calls of all of them for one round trip at a time.

    The generator is sent the replies, with a CacheError in place of a failed one, and returns each invalidation's
    generations or its first error. The versions of a query are read once.
    """
    results: list[Any] = [None] * len(invalidations)
    replies: dict[int, Sequence[Any] | None] = dict.fromkeys(range(len(invalidations)))
    while replies:
        calls: dict[int, Sequence[Call[Any]]] = {}
        for place, of_one in replies.items():
            try:
                rounds = invalidations[place]
                calls[place] = next(rounds) if of_one is None else rounds.send(of_one)
            except StopIteration as done:
                results[place] = done.value
        replies = {}
        if not calls:
            break
        once = {_once(call): call for of_one in calls.values() for call in of_one}
        found = dict(zip(once, (yield list(once.values())), strict=True))
        for place, of_one in calls.items():
            got = [found[_once(call)] for call in of_one]
            if failed := next((reply for reply in got if isinstance(reply, CacheError)), None):
                results[place] = failed
            else:
                replies[place] = got
    return results


def _once(call: Call[Any]) -> tuple[Any, ...]:
    """Return the identity of a call: equal for calls that read the same versions or invalidate the same key."""
    return call.script, call.keys


def _register(namespace: str, query: str, member: int | str, lives_seconds: float) -> Call[int]:
    return Call("register", (versions_key(namespace, query),), (member, max(1, round(lives_seconds * 1_000))), int)
