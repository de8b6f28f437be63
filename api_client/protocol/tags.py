"""Tags: names of data on which values depend, used to invalidate entries together.

::

    worker       read the clock ──▶ load ──▶ register each tag ──▶ commit
    invalidator  write to the graph ──▶ tick ──▶ keep ──▶ mark each tag ──▶ walk each index ──▶ finish

A load that read the invalidation's number, or a larger one, began after its tick, and so after the write. Any other
load registered before the walk, which finds it, or after the mark, which its registration returns. "Tags" in
docs/explanation/protocol.md gives the reason for this order.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeAlias

import msgspec

from api_client.protocol.keys import (
    CacheKey,
    key_of_member,
    pending_tags_key,
    tag_clock_key,
    tag_index_key,
    tag_member,
    tag_state_key,
)
from api_client.protocol.lease import MAX_BOOKMARKS_BYTES, Call, invalidate
from api_client.protocol.params import plain

MAX_TAGS: Final = 64
MAX_TAG_BYTES: Final = 200
TAGS_ALLOWED: Final = f"at most {MAX_TAGS} texts of 1 to {MAX_TAG_BYTES} bytes in UTF-8"

PENDING_SECONDS: Final = 10.0
"""Time after which a worker takes over an invalidation that has made no progress."""
MAX_RUN_SECONDS: Final = 6_600.0
"""Limit after which a registering run may have outlived its tags' states, and so counts as invalidated."""
PAGE_MEMBERS: Final = 100
STEP_ENTRIES: Final = 25
"""Entries invalidated per round trip; the node's other clients wait half a millisecond for them."""

Rounds: TypeAlias = Generator[Sequence[Call[Any]], Sequence[Any], int]
"""Yields the calls of one round trip at a time, is sent their replies, and counts the invalidated entries."""


def check_tags(tags: object) -> tuple[str, ...]:
    """Return tags as plain strings in Unicode NFC, without duplicates.

    Raises:
        ValueError: they are not valid tags; the message says what is wrong and what is allowed.
    """
    if isinstance(tags, str | bytes) or not isinstance(tags, Iterable):
        raise ValueError(f"tags of type {type(tags).__name__}: expected {TAGS_ALLOWED}")
    given = list(islice(tags, MAX_TAGS + 1))  # a generator may have no end
    if len(given) > MAX_TAGS:
        raise ValueError(f"more than {MAX_TAGS} tags: expected {TAGS_ALLOWED}")
    return tuple(dict.fromkeys(map(_check_tag, given)))


def _check_tag(tag: object) -> str:
    tag = plain(tag)
    if not isinstance(tag, str):
        raise ValueError(f"a tag of type {type(tag).__name__}: expected {TAGS_ALLOWED}")
    tag = unicodedata.normalize("NFC", tag)
    try:
        length = len(tag.encode())
    except UnicodeEncodeError:
        raise ValueError(f"a tag that has no UTF-8 form: expected {TAGS_ALLOWED}") from None
    if not 0 < length <= MAX_TAG_BYTES:
        raise ValueError(f"a tag of {length} bytes: expected {TAGS_ALLOWED}")
    return tag


@dataclass(frozen=True, slots=True)
class TagReply:
    """State of a tag at a registration: the largest numbers of its invalidations, and bookmarks of recent ones."""

    now_us: int
    last: int
    hard: int
    bookmarks: tuple[str, ...]


def read_clock(namespace: str) -> Call[int]:
    """Return the call that reads the tag clock's number, 0 if it is lost."""
    return Call("tag_clock", (tag_clock_key(namespace),), (), int)


def tick(namespace: str, *, at_least: int = 0) -> Call[int]:
    """Draw the number of an invalidation; ``at_least`` advances a clock that is behind a tag's state."""
    return Call("tag_tick", (tag_clock_key(namespace),), (at_least,), int)


def register(key: CacheKey, tag: str, *, lives_seconds: float) -> Call[TagReply]:
    """Register an entry with a tag, before its commit, for at least ``lives_seconds``."""
    keys = (tag_index_key(key.namespace, tag), tag_state_key(key.namespace, tag))
    return Call("tag_register", keys, (tag_member(key), round(lives_seconds * 1_000)), _tag_reply)


def mark(namespace: str, tag: str, *, number: int, hard: bool, bookmarks: Sequence[str]) -> Call[int]:
    """Mark a tag with an invalidation; the result is the largest number of its marks."""
    arguments = (number, int(hard), "\n".join(bookmarks), MAX_BOOKMARKS_BYTES)
    return Call("tag_mark", (tag_state_key(namespace, tag),), arguments, int)


def page(
    namespace: str, tag: str, *, number: int, cursor: int | None, limit: int
) -> Call[tuple[tuple[bytes, int], ...]]:
    """Read members with their scores, from ``cursor`` on, or with None from where the walk stopped."""
    keys = (tag_index_key(namespace, tag), tag_state_key(namespace, tag))
    return Call("tag_page", keys, (number, "" if cursor is None else cursor, limit), _members)


def keep(namespace: str, description: bytes, *, lease_seconds: float, renew: bool = False) -> Call[int]:
    """Store an invalidation as pending; a worker takes it over after ``lease_seconds``."""
    arguments = (description, round(lease_seconds * 1_000), int(renew))
    return Call("tag_keep", (pending_tags_key(namespace),), arguments, int)


def finish(namespace: str, description: bytes) -> Call[int]:
    """Remove a pending invalidation that is done."""
    return Call("tag_finish", (pending_tags_key(namespace),), (description,), int)


def take(namespace: str) -> Call[bytes]:
    """Take over a pending invalidation that makes no progress; the result is ``b""`` if there is none."""
    return Call("tag_take", (pending_tags_key(namespace),), (round(PENDING_SECONDS * 1_000),), bytes)


def sweep(index: str, state: str, *, limit: int) -> Call[int]:
    """Remove at most ``limit`` expired members of a tag, and an expired state; the result is the number of members."""
    return Call("tag_sweep", (index, state), (limit,), int)


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """An invalidation as stored until it is done."""

    number: int
    tags: tuple[str, ...]
    hard: bool
    bookmarks: tuple[str, ...]


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Pending).decode


class TagWalk:
    """One invalidation of tags. No I/O of its own.

    Args:
        namespace, retention_seconds: as for keys and records.
        touched: called with each key that has been invalidated.
    """

    def __init__(
        self, namespace: str, *, retention_seconds: float, touched: Callable[[CacheKey], object] = lambda _: None
    ) -> None:
        self._namespace, self._retention_seconds, self._touched = namespace, retention_seconds, touched

    def invalidate(
        self, tags: Collection[str], *, hard: bool = False, bookmarks: Sequence[str] = (), wait: bool = True
    ) -> Rounds:
        """Invalidate all entries of some tags; without ``wait``, store and mark it and let a worker do the rest."""
        if not tags:
            return 0
        (number,) = yield [tick(self._namespace)]
        pending = Pending(number=number, tags=tuple(tags), hard=hard, bookmarks=tuple(bookmarks))
        kept = _encode(pending)
        yield [keep(self._namespace, kept, lease_seconds=PENDING_SECONDS if wait else 0.0)]
        return (yield from self._finish(pending, kept, walks=wait))

    def resume(self, kept: bytes) -> Rounds:
        """Finish an invalidation that was taken over, marking its tags again in case the invalidator died before."""
        try:
            pending = _decode(kept)
        except msgspec.MsgspecError:  # garbage
            yield [finish(self._namespace, kept)]
            return 0
        return (yield from self._finish(pending, kept, walks=True))

    def _finish(self, pending: Pending, kept: bytes, *, walks: bool) -> Rounds:
        yield [
            mark(self._namespace, tag, number=pending.number, hard=pending.hard, bookmarks=pending.bookmarks)
            for tag in pending.tags
        ]
        if not walks:
            return 0
        count = yield from self._walk(pending, kept)
        yield [finish(self._namespace, kept)]
        return count

    def _walk(self, pending: Pending, kept: bytes) -> Rounds:
        walks = {tag: _IndexWalk(self._namespace, tag, pending.number) for tag in pending.tags}
        count = 0
        while walks:
            _, *pages = yield [
                keep(self._namespace, kept, lease_seconds=PENDING_SECONDS, renew=True),
                *(walk.next_page() for walk in walks.values()),
            ]
            members = dict.fromkeys(
                member for walk, page_ in zip(walks.values(), pages, strict=True) for member in walk.turn(page_)
            )
            keys = [key for member in members if (key := key_of_member(self._namespace, member)) is not None]
            for start in range(0, len(keys), STEP_ENTRIES):
                part = keys[start : start + STEP_ENTRIES]
                yield [
                    invalidate(
                        key, hard=pending.hard, bookmarks=pending.bookmarks, retention_seconds=self._retention_seconds
                    )
                    for key in part
                ]
                for key in part:
                    self._touched(key)
            count += len(keys)
            walks = {tag: walk for tag, walk in walks.items() if not walk.is_over}
        return count


class _IndexWalk:
    """A walk through one tag's index towards larger scores, so that members that move stay ahead of it.

    Each page begins with the previous page's last score, since more members may have it.
    """

    def __init__(self, namespace: str, tag: str, number: int) -> None:
        self._namespace, self._tag, self._number = namespace, tag, number
        self._cursor: int | None = None
        self._limit = PAGE_MEMBERS
        self.is_over = False

    def next_page(self) -> Call[tuple[tuple[bytes, int], ...]]:
        """Return the call for the next page, which also records that all earlier members are invalidated."""
        return page(self._namespace, self._tag, number=self._number, cursor=self._cursor, limit=self._limit)

    def turn(self, members: Sequence[tuple[bytes, int]]) -> list[bytes]:
        """Return the members of a page that are to be invalidated, and move past them."""
        if len(members) < self._limit:
            self.is_over = True
            return [member for member, _ in members]
        first, self._cursor = members[0][1], members[-1][1]
        if first == self._cursor:  # all have the same score, so only a larger page shows whether there are more
            self._limit *= 2
            return []
        return [member for member, score in members if score < self._cursor]


def _tag_reply(reply: Sequence[bytes]) -> TagReply:
    now_us, last, hard, bookmarks = reply
    lines = tuple(dict.fromkeys(filter(None, bookmarks.decode().split("\n"))))
    return TagReply(int(now_us), int(last), int(hard), lines)


def _members(reply: Sequence[bytes]) -> tuple[tuple[bytes, int], ...]:
    return tuple((member, int(float(score))) for member, score in zip(reply[::2], reply[1::2], strict=True))
