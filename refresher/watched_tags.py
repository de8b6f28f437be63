"""Tags by which changes of watched labels and types of the graph, and the values that depend on them, meet.

======================  =====================================================================================
tag                     invalidated by
======================  =====================================================================================
``Person``              any change of a node with that label: created, deleted, a property, a label
``Person:id=42``        the same of the node with that key, and of one that had it before
``Person:id=``          the same of a node without a key
``Person:*``            a transaction that changed too many nodes to name each
``KNOWS``               any change of a relationship of that type: created, deleted, a property; and of its ends a
                        watched label or a key
``KNOWS@Person:id=42``  the same of one that begins or ends at that node
``KNOWS:*``             a transaction that changed too many relationships to name each
======================  =====================================================================================
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

_FINE: Final = re.compile("([^:@]+)(?:@[^:]+)?:[^=]+=")
"""The tag of a node or of an end; its group is the label or type."""


def node_tag(label: str, key: str, value: str) -> str:
    """Return the tag of the node with a value of its label's key property."""
    return f"{label}:{key}={value}"


def end_tag(kind: str, node: str) -> str:
    """Return the tag of the relationships of a type that begin or end at a node, given by its tag."""
    return f"{kind}@{node}"


def bulk_tag(name: str) -> str:
    """Return the tag of a bulk change, by label or type."""
    return f"{name}:*"


def watched_name(tag: str) -> str:
    """Return the label or type of a change feed's tag; of any other the tag itself."""
    fine = _FINE.match(tag)
    return fine[1] if fine else tag.removesuffix(bulk_tag(""))


def coarsened(tags: Iterable[str], most: int) -> tuple[str, ...]:
    """Return tags of what was read, at most so many: in place of the most of one label or type, that of all of them.

    Each label or type among them has its ``:*``; tags of another kind stay, as ``Person:vip``.
    """
    found = dict.fromkeys(tags)
    names = Counter(map(watched_name, found))
    for name, _ in names.most_common():
        bulk = bulk_tag(name)
        if bulk in found and (name in found or len(found) > most):
            found = {tag: None for tag in found if watched_name(tag) != name} | dict.fromkeys((name, bulk))
    return tuple(found)
