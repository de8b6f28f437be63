"""Watched labels and types of the graph, and the tags of values that depend on them."""

from __future__ import annotations

import hashlib
import math
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from api_client.errors import ConfigurationError
from api_client.protocol.params import plain
from refresher.queries import AUTO, Query
from refresher.watched_tags import bulk_tag, end_tag, node_tag

MAX_NAME_BYTES: Final = 44
MAX_VALUE_BYTES: Final = 64
"""Longest key value in a tag; a longer one is replaced by its digest, to keep the tag within 200 bytes."""


@dataclass(slots=True)
class Watches:
    """Watched labels, each with the key property of its nodes, and watched relationship types."""

    nodes: dict[str, str] = field(default_factory=dict)
    relationships: set[str] = field(default_factory=set)

    def node(self, label: str, *, key: str) -> None:
        """Watch nodes; see `watch`."""
        known = self.nodes.setdefault(_name("label", label), _name("key", key))
        if known != key:
            raise ConfigurationError("key", repr(key), f"{label} is watched by {known!r} already: a label has one key")

    def relationship(self, kind: str) -> None:
        """Watch relationships; see `watch_relationship`."""
        self.relationships.add(_name("type", kind))

    def node_tag(self, label: str, value: Any) -> str | None:
        """Return the tag of one node by its key value, or None for a value that can't have a tag."""
        text = _text_of(value)
        return None if text is None else node_tag(label, self.nodes[label], text)


watches: Final = Watches()
"""The watches of this process."""


def watch(label: str, *, key: str) -> None:
    """Watch the nodes with a label; ``key`` is the property that identifies a node.

    Raises:
        ConfigurationError: the label is already watched with another key, or a name is empty or too long.
    """
    watches.node(label, key=key)


def watch_relationship(kind: str) -> None:
    """Watch the relationships of a type, whose ends are identified by the keys of `watch`.

    Raises:
        ConfigurationError: the name is empty or too long.
    """
    watches.relationship(kind)


def node_tags(label: str, *values: Any) -> tuple[str, ...]:
    """Return the tags of a value that depends on nodes of a watched label, given by their keys.

    For example ``node_tags("Person", 42, 43)``. Without keys it depends on all nodes of the label.

    Raises:
        ConfigurationError: the label is not watched.
    """
    if label not in watches.nodes:
        raise _unwatched("label", label, f"watch({label!r}, key=…)")
    return _tags(label, [watches.node_tag(label, value) for value in values])


def relationship_tags(kind: str, label: str = "", *values: Any) -> tuple[str, ...]:
    """Return the tags of a value that depends on relationships of a watched type, given by nodes at either end.

    For example ``relationship_tags("KNOWS", "Person", 42)``. Without nodes it depends on all relationships of the type.

    Raises:
        ConfigurationError: the type or the label is not watched.
    """
    if kind not in watches.relationships:
        raise _unwatched("type", kind, f"watch_relationship({kind!r})")
    if values and label not in watches.nodes:
        raise _unwatched("label", label, f"watch({label!r}, key=…)")
    return _tags(kind, [tag and end_tag(kind, tag) for tag in (watches.node_tag(label, value) for value in values)])


def check_watched(queries: Iterable[Query]) -> None:
    """Check that something is watched if a query has ``tags="auto"``.

    Raises:
        ConfigurationError: nothing is watched.
    """
    name = next((query.name for query in queries if query.tags == AUTO), None)
    if name is not None and not watches.nodes and not watches.relationships:
        allowed = (
            'watch("Person", key="id") or watch_relationship("KNOWS"), from refresher.feed, in a module of queries'
        )
        raise ConfigurationError(f"tags of @query({name!r})", repr(AUTO), f"nothing is watched: {allowed}")


def _tags(coarse: str, fine: list[str | None]) -> tuple[str, ...]:
    named = [tag for tag in fine if tag]
    return (*(named if named and len(named) == len(fine) else [coarse]), bulk_tag(coarse))


def _text_of(value: Any) -> str | None:
    """Return a key's value as text; None for a type that the feed and queries may spell differently (date, list, NaN).

    A node without a key has an empty text. The graph considers 42 and 42.0 equal, so they have the same text. Different
    values may share a text, which costs a load.
    """
    value = "" if value is None else plain(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int | float | str) or (isinstance(value, float) and not math.isfinite(value)):
        return None
    text = unicodedata.normalize("NFC", str(value))  # as for a query's tags
    encoded = text.encode(errors="surrogatepass")
    return text if len(encoded) <= MAX_VALUE_BYTES else f"#{hashlib.blake2b(encoded, digest_size=16).hexdigest()}"


def _name(what: str, name: object) -> str:
    if not isinstance(name, str) or not 0 < len(name.encode(errors="replace")) <= MAX_NAME_BYTES:
        raise ConfigurationError(what, repr(name)[:100], f"expected text of 1 to {MAX_NAME_BYTES} bytes")
    return name


def _unwatched(what: str, name: str, remedy: str) -> ConfigurationError:
    known = ", ".join(sorted(watches.nodes if what == "label" else watches.relationships)) or "none"
    return ConfigurationError(what, repr(name), f"it is not watched ({known}): {remedy}")
