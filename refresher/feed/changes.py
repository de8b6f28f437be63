"""Changes of the graph as a source hands them out, and the tags that they invalidate.

A source is an outbox that a trigger fills, or any other: it hands out what is there, in about the order of the commits,
and keeps it until it is acknowledged. So a change is seen at least once, whatever ends in between; to invalidate once
more costs a load.
"""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from refresher.feed.watches import Watches
from refresher.watched_tags import bulk_tag, end_tag


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of some transactions.

    Attributes:
        tags: what they invalidate, each once.
        positions: of their transactions, as the source knows them, for `ChangeSource.acknowledge`.
        ages_seconds: of the transactions when they were taken.
        bookmarks: a load after them reads all of the changes.
        bulk: of how many transactions the changes were too many to be named.
        left: how many transactions the source has besides; None: some.
    """

    tags: tuple[str, ...]
    positions: tuple[Any, ...]
    ages_seconds: tuple[float, ...]
    bookmarks: tuple[str, ...]
    bulk: int = 0
    left: int | None = 0


class ChangeSource(Protocol):
    """A place that changes come from."""

    def take(self) -> Changes:
        """Return the oldest changes, a bounded number; those that are not acknowledged come again."""

    def acknowledge(self, changes: Changes) -> None:
        """Remove changes, once what they invalidate is invalidated. May be repeated."""


class Change(msgspec.Struct, frozen=True):
    """Changes of one transaction, as the trigger notes them: by watched label, the keys of its nodes, before and after.

    By watched type, the keys of the nodes at the relationships' ends. A ``bulk`` change names no keys.
    """

    bulk: bool
    nodes: list[tuple[str, list[Any]]]
    relationships: list[tuple[str, list[Any]]]


def gathered(
    taken: Sequence[tuple[object, object, Change | None]],
    watches: Watches,
    bookmarks: tuple[str, ...],
    *,
    left: int | None,
    now_ms: float | None = None,
) -> Changes:
    """Return changes of transactions, of each its position, its time in ms, and what it changed.

    ``now_ms`` is by the graph's clock; default: this host's. ``left`` is of `Changes`.
    """
    if now_ms is None:
        now_ms = time.time() * 1e3
    return Changes(
        tags=tuple(dict.fromkeys(tag for _, _, change in taken for tag in tags_of(change, watches))),
        positions=tuple(position for position, _, _ in taken),
        ages_seconds=tuple(max(0.0, now_ms - at) / 1e3 for _, at, _ in taken if isinstance(at, int)),
        bookmarks=bookmarks,
        bulk=sum(change is None or change.bulk for _, _, change in taken),
        left=left,
    )


_decode = msgspec.json.Decoder(Change).decode


def change_of(note: object) -> Change | None:
    """Return the change of a note; None: it can't be read, as one that somebody else has written."""
    try:
        return _decode(note) if isinstance(note, str) else None
    except msgspec.MsgspecError:
        return None


def tags_of(change: Change | None, watches: Watches) -> Iterator[str]:
    """Yield the tags that a change invalidates; of one that can't be read, all coarse ones."""
    for tag in _tags_of(change, watches):
        yield unicodedata.normalize("NFC", tag)  # as those of entries are


def _tags_of(change: Change | None, watches: Watches) -> Iterator[str]:
    if change is None:
        for name in (*watches.nodes, *watches.relationships):
            yield from (name, bulk_tag(name))
        return
    for label, keys in change.nodes:
        yield label
        yield from _node_tags(((label, key) for key in keys), watches)
    for kind, ends in change.relationships:
        yield kind
        for tag in _node_tags(((end["label"], end["value"]) for end in ends), watches):
            yield end_tag(kind, tag)
    if change.bulk:
        for name, _ in (*change.nodes, *change.relationships):
            yield bulk_tag(name)


def _node_tags(nodes: Iterable[tuple[str, Any]], watches: Watches) -> Iterator[str]:
    for label, key in nodes:
        if label in watches.nodes and (tag := watches.node_tag(label, key)) is not None:
            yield tag
