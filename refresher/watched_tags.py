"""Tags that connect changes of watched labels and types of the graph with the values that depend on them.

======================  =====================================================================================
tag                     invalidated by
======================  =====================================================================================
``Person``              any change of a node with that label: created, deleted, a property, a label
``Person:id=42``        the same for the node with that key, or that had it before
``Person:id=``          the same for a node without a key
``Person:*``            a transaction that changed too many nodes to list each
``KNOWS``               any change of a relationship of that type: created, deleted, a property; or of a watched
                        label or a key of its ends
``KNOWS@Person:id=42``  the same for one that begins or ends at that node
``KNOWS:*``             a transaction that changed too many relationships to list each
======================  =====================================================================================
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

_FINE: Final = re.compile("([^:@]+)(?:@[^:]+)?:[^=]+=")
"""Pattern of a node's or an end's tag, whose group is the label or type."""


def node_tag(label: str, key: str, value: str) -> str:
    """Return the tag of the node with this value of its label's key property."""
    return f"{label}:{key}={value}"


def end_tag(kind: str, node: str) -> str:
    """Return the tag of the relationships of a type that begin or end at a node, given by its tag."""
    return f"{kind}@{node}"


def bulk_tag(name: str) -> str:
    """Return the tag of a bulk change, by label or type."""
    return f"{name}:*"


def watched_name(tag: str) -> str:
    """Return the label or type of a change feed's tag, or any other tag itself."""
    fine = _FINE.match(tag)
    return fine[1] if fine else tag.removesuffix(bulk_tag(""))


def coarsened(tags: Iterable[str], most: int) -> tuple[str, ...]:
    """Return at most ``most`` tags, replacing those of the most frequent labels and types by their coarse tags.

    Each label or type among them gets its ``:*``; other tags, such as ``Person:vip``, stay.
    """
    found = dict.fromkeys(tags)
    names = Counter(map(watched_name, found))
    for name, _ in names.most_common():
        bulk = bulk_tag(name)
        if bulk in found and (name in found or len(found) > most):
            found = {tag: None for tag in found if watched_name(tag) != name} | dict.fromkeys((name, bulk))
    return tuple(found)
