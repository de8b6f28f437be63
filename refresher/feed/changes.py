"""Changes of the graph, as a source returns them, and the tags that they invalidate.

A source, such as an outbox that a trigger fills, returns changes in about the order of their commits, and keeps them
until they are acknowledged. So a change is seen at least once, whatever ends in between; a repeated invalidation costs
a load.
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
        tags: the tags that they invalidate, each once.
        positions: the source's positions of their transactions, for `ChangeSource.acknowledge`.
        ages_seconds: the ages of the transactions when they were taken.
        bookmarks: the bookmarks after which a load reads all of the changes.
        bulk: the number of transactions with too many changes to list.
        left: the number of further transactions of the source; None if unknown but not zero.
    """

    tags: tuple[str, ...]
    positions: tuple[Any, ...]
    ages_seconds: tuple[float, ...]
    bookmarks: tuple[str, ...]
    bulk: int = 0
    left: int | None = 0


class ChangeSource(Protocol):
    """A source of changes."""

    def take(self) -> Changes:
        """Return a bounded number of the oldest changes; unacknowledged ones come again."""

    def acknowledge(self, changes: Changes) -> None:
        """Remove changes once their tags are invalidated. May be repeated."""


class Change(msgspec.Struct, frozen=True):
    """Changes of one transaction, as the trigger notes them: the keys of nodes before and after, by watched label.

    Also, by watched type, the keys of the nodes at the relationships' ends. A ``bulk`` change lists no keys.
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
    """Combine transactions, given by position, time in ms and change, into `Changes`.

    ``now_ms`` is by the graph's clock; default: this host's. ``left`` is as in `Changes`.
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
    """Decode a note; return None if it can't be read, because somebody else has written it, say."""
    try:
        return _decode(note) if isinstance(note, str) else None
    except msgspec.MsgspecError:
        return None


def tags_of(change: Change | None, watches: Watches) -> Iterator[str]:
    """Yield the tags that a change invalidates; for an unreadable one, all coarse tags."""
    for tag in _tags_of(change, watches):
        yield unicodedata.normalize("NFC", tag)  # as for entries' tags


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
