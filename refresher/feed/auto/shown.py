"""Nodes that a result shows: the place of their keys in its rows, followed upwards through a plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from refresher.feed.auto.expressions import CACHED, NAME, divided, unquoted
from refresher.feed.auto.operators import OF_FIRST_CHILD, ROW_BY_ROW, SHOWS, Operator


def way_to_result(
    node: str, found_at: Operator, key_property: str, readers: set[Operator], is_one_thing: Callable[[str], bool]
) -> tuple[str, ...]:
    """Return the column and path where rows show the key of each node that is read, or the node; empty if nowhere.

    The node is found at an operator, and ``readers`` are the operators that read something of it. After a read each of
    its rows has to be visible in the end; before, the loss of a row tells nothing.
    """
    shown: dict[str, tuple[str, ...]] = {node: ()}
    nodes, unread, is_read, below = {node}, set(readers), False, found_at
    while (above := below.parent) is not None and shown and all(map(is_one_thing, shown)):
        keeps = above.kind in SHOWS or (above.kind == "Apply" and below.place == 1)
        if not keeps and (is_read or not (above.kind in ROW_BY_ROW or _is_first(above, below))):
            return ()
        if above.kind == "RollUpApply" and below.place == 1:
            collection, _, item = above.details.partition(", ")
            shown = {collection: ("*", *shown[item])} if shown.get(item) or item in nodes else {}
            nodes = set()
        elif above.items:
            shown, nodes = _carried(above, shown, nodes, key_property)
        if above in unread and keeps:
            unread.remove(above)
            is_read = is_read or above.kind != "CacheProperties"
        below = above
    is_certain = above is None and not unread
    return next(((column, *path) for column, path in shown.items() if is_certain), ())


def _is_first(above: Operator, below: Operator) -> bool:
    return above.kind in OF_FIRST_CHILD and below.place == 0


def _carried(
    above: Operator, shown: Mapping[str, tuple[str, ...]], nodes: set[str], key_property: str
) -> tuple[dict[str, tuple[str, ...]], set[str]]:
    """Return the names that show the key above a projection, and those among them that are the node itself."""
    given = {name for _, name in above.items}
    keeps_others = above.kind == "Projection"
    found = {name: path for name, path in shown.items() if keeps_others and name not in given}
    for expression, name in above.items:
        path = _path_in(CACHED.sub(r"\1.\2", expression), shown, nodes, key_property)
        if path is not None:
            found[name] = path
    same = {name for expression, name in above.items if expression in nodes}
    return found, same | {name for name in nodes if keeps_others and name not in given}


def _path_in(
    expression: str, shown: Mapping[str, tuple[str, ...]], nodes: set[str], key_property: str
) -> tuple[str, ...] | None:
    """Return the path of the key within an expression's value, or None if it is not there for certain."""
    if expression in shown:
        return shown[expression]
    if any(expression == f"{name}.{key_property}" for name in nodes):
        return ()
    if collected := re.fullmatch(r"collect\((?:DISTINCT )?(.*)\)", expression, re.DOTALL):
        path = _path_in(collected[1], shown, nodes, key_property)
        # A bare key that is null would not be collected.
        return ("*", *path) if path or (path == () and collected[1] in nodes) else None
    if made := re.fullmatch(rf"({NAME})?\{{(.*)\}}", expression, re.DOTALL):
        items = [item.partition(":") for item in divided(made[2], ",")]
        names = [unquoted(name) for name, _, _ in items]
        for name, (_, _, value) in zip(names, items, strict=True):
            path = _path_in(value.strip(), shown, nodes, key_property)
            if path is not None and names.count(name) == 1:
                return (name, *path)
        if ".*" in names and made[1] in nodes and key_property not in names:  # an explicit value overrides it
            return (key_property,)
    return None
