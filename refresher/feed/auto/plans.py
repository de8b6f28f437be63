"""Dependencies of a result, derived from the graph's plan for its Cypher.

A plan is valid for its text, so the result depends on what the plan reads. All places that may bind a variable count,
because names are unique neither over a plan's branches nor over its scopes. ::

    NodeUniqueIndexSeek   p:Person(id) WHERE id = $id   ──▶ the Person with that key
    Expand(All)           (p)-[:KNOWS]-(f)              ──▶ the KNOWS of that Person
    Filter                f:Person                      ──▶ nodes that become a Person, or cease to be one
    Projection            f.id AS id, f.name AS name    ──▶ the Persons that the result shows, by their keys
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from refresher.feed.auto import operators
from refresher.feed.auto.dependencies import Dependencies, Dependency, Key
from refresher.feed.auto.expressions import (
    CLOCKS,
    NAME,
    NotUnderstood,
    Reads,
    conjuncts,
    divided,
    is_identifier,
    label_test,
    named,
    reads_of,
    types_of,
)
from refresher.feed.auto.operators import Operator, tree_of, unknown
from refresher.feed.auto.shown import way_to_result
from refresher.feed.watches import Watches

_SCANS: Final = re.compile(rf"({NAME}):(\w+(?:(?:\||&!?)\w+)*)")
_SEEK: Final = re.compile(
    rf"(?:UNIQUE|(?:RANGE|TEXT|POINT) INDEX) ({NAME}):(\w+)\(([^)]*)\)(?: WHERE (.*?))?(?:, cache\[[^\]]*\])*",
    re.DOTALL,
)
_HOP: Final = re.compile(
    rf"\((?P<start>{NAME})\)<?-\[(?P<name>{NAME})?(?::(?P<types>[^\]*]*))?(?P<length>\*[^\]]*)?\]"
    rf"->?\((?P<end>{NAME})\)\s*(?:WHERE (?P<where>.*))?",
    re.DOTALL,
)
_INDEXED_HOP: Final = re.compile(
    rf"(?:RANGE|TEXT|POINT) INDEX \((?P<start>{NAME})\)<?-\[(?P<name>{NAME}):(?P<types>\w+)\([^)]*\)\]"
    rf"->?\((?P<end>{NAME})\)(?: WHERE (?P<where>.*?))?(?:, cache\[[^\]]*\])*",
    re.DOTALL,
)
_KEY_CONDITION: Final = re.compile(rf"(?:cache\[)?({NAME})\.(\w+)\]? (=|IN) (.+)", re.DOTALL)
_ID_SEEK: Final = re.compile(rf"({NAME}) WHERE (.*)", re.DOTALL)
_SHORTEST: Final = re.compile(rf"({NAME}) = (\(.*\))", re.DOTALL)
_COUNTED: Final = "all are counted"
_NO_END: Final = "neither end is found by a key that a parameter gives"


@dataclass(slots=True, eq=False)
class _Binding:
    """A place that binds a variable to nodes: a leaf that finds them by ``labels``, a hop, or an alias of ``source``.

    Its rows pass the label tests in ``tests``, have one of the ``keys``, and are one hop from ``neighbours``.
    """

    name: str
    operator: Operator
    labels: tuple[str, ...] = ()
    is_hop: bool = False
    is_seek: bool = False
    source: str = ""
    keys: dict[str, Key] = field(default_factory=dict)
    tests: list[frozenset[str]] = field(default_factory=list)
    neighbours: list[str] = field(default_factory=list)


def dependencies_of(cypher: str, plan: Mapping[str, Any], watches: Watches) -> Dependencies:
    """Return the dependencies of a text's result, by this plan."""
    return _Analysis(watches).run(cypher, plan)


class _Analysis:
    def __init__(self, watches: Watches) -> None:
        self._watches = watches
        self._bindings: dict[str, list[_Binding]] = {}
        self._opaque: set[str] = set()
        self._paths: set[str] = set()
        self._given: dict[str, list[tuple[Operator, str]]] = {}
        self._hops: list[tuple[str, str, tuple[str, ...], bool]] = []
        self._found: dict[Dependency, None] = {}
        self._gaps: dict[str, None] = {}
        self._reads: list[tuple[Operator, Reads]] = []

    def run(self, cypher: str, plan: Mapping[str, Any]) -> Dependencies:
        try:
            steps = list(tree_of(plan).walk())
            _check_text(cypher)
            for one in steps:
                self._bind(one)
            for bindings in self._bindings.values():
                for binding in bindings:
                    self._look_up(binding)
            for binding in [one for bindings in self._bindings.values() for one in bindings]:
                self._take_as_neighbour(binding)
            for one in steps:
                self._read(one)
            self._resolve()
        except NotUnderstood as error:
            self._gap(str(error))
        return Dependencies(tuple(self._found), tuple(self._gaps))

    def _gap(self, why: str) -> None:
        self._gaps[why] = None

    # Bindings of variables.

    def _bind(self, one: Operator) -> None:
        bind = next((bind for kinds, bind in _BINDERS if one.kind in kinds), None)
        if bind is None:
            raise NotUnderstood(unknown(one))
        bind(self, one)

    def scan_labels(self, one: Operator) -> None:
        found = _matched(_SCANS, one)
        labels = re.findall(r"\w+", found[2])
        positive = [name for name in labels if f"!{name}" not in found[2]]
        # In a union each label matters, otherwise any one, since the nodes have all of them.
        watched = [name for name in positive if name in self._watches.nodes]
        self._add(_Binding(found[1], one, tuple(positive if "|" in found[2] else (watched or positive)[:1])))
        self._reads.append((one, Reads(labels=[(found[1], frozenset(labels))])))
        one.details = ""

    def scan_index(self, one: Operator) -> None:
        found = _matched(_SEEK, one)
        binding = _Binding(found[1], one, (found[2],))
        self._add(binding)
        one.details = found[4] or ""
        if one.kind in operators.SEEKS:
            self._take_keys(binding, [f"{found[1]}.{condition}" for condition in conjuncts(one.details)])

    def seek_id(self, one: Operator) -> None:
        found = _matched(_ID_SEEK, one)
        self._add(_Binding(found[1], one, is_seek=True))
        one.details = found[2]

    def find_path(self, one: Operator) -> None:
        found = _matched(_SHORTEST, one)
        self._paths.add(found[1])
        self._opaque.add(found[1])
        one.details = found[2]
        self.hop(one)

    def scan_type(self, one: Operator) -> None:
        found = _matched(_HOP if one.kind in operators.TYPE_SCANS else _INDEXED_HOP, one)
        for name in dict.fromkeys((found["start"], found["end"])):
            self._add(_Binding(name, one, is_hop=True))
        self._give(found["name"], one)
        for kind in types_of(found["types"]):
            self._depend(Dependency(kind, is_type=True, why=_NO_END))
        one.details = found["where"] or ""

    def compare(self, one: Operator) -> None:
        one.details = ""  # it compares only identities; those of a TriadicSelection are covered by the hops below it

    def roll_up(self, one: Operator) -> None:
        collection, _, item = one.details.partition(", ")
        self._opaque.update((collection, item))
        self._give(collection, one)

    def keep(self, one: Operator) -> None:
        """Bind nothing."""

    def _add(self, binding: _Binding) -> None:
        self._bindings.setdefault(binding.name, []).append(binding)

    def _give(self, name: str | None, by: Operator, expression: str = "") -> None:
        """Note an operator that names something other than found nodes; ``expression`` yields one of these per row."""
        if name:
            self._given.setdefault(name, []).append((by, expression))

    def hop(self, one: Operator) -> None:
        found = _matched(_HOP, one)
        is_long = found["length"] is not None
        start, end = found["start"], found["end"]
        self._hops.append((start, end, types_of(found["types"]), is_long))
        self._give(found["name"], one)
        one.hops = [(start, end), (end, start)]
        if one.kind != "ShortestPath" and "(Into" not in one.kind:
            self._add(_Binding(end, one, is_hop=True))
        one.details = found["where"] or ""

    def count(self, one: Operator) -> None:
        counted, _, name = one.details.partition(" ) AS ")
        if not name:
            raise NotUnderstood(unknown(one))
        self._give(name, one)
        hop = re.search(r"\[[^:\]]*:?([^\]]*)\]", counted)
        for kind in types_of(hop[1]) if hop else ():
            self._depend(Dependency(kind, is_type=True, why=_COUNTED))
        for label in re.findall(r"\(([^()]*)\)", counted):
            if label:
                self._depend(Dependency(label.removeprefix(":"), why=_COUNTED))
            elif hop is None:
                raise NotUnderstood("all nodes, whatever their label: name one")
        one.details = ""

    def project(self, one: Operator) -> None:
        one.items = [named(item) for item in divided(one.details, ",")]
        for expression, name in one.items:
            if not is_identifier(name):
                raise NotUnderstood(unknown(one))
            if name != expression:  # a name that is given twice identifies nothing
                self._give(name, one, expression if one.kind == "Unwind" else "")
            if re.fullmatch(NAME, expression) and one.kind != "Unwind":
                if name != expression:
                    self._add(_Binding(name, one, source=expression))
            elif name != expression:
                self._opaque.add(name)

    # Conditions on the rows of a variable.

    def _look_up(self, binding: _Binding) -> None:
        if binding.source:
            return
        below, name = binding.operator, binding.name
        own = list(conjuncts(below.details)) if below.kind.startswith("OptionalExpand") else []
        self._take(binding, own)
        while (above := below.parent) is not None:
            if above.kind not in operators.ROW_BY_ROW and not (
                above.kind in operators.OF_FIRST_CHILD and below.place == 0
            ):
                return
            others = [one.operator for one in self._bindings[name] if one is not binding]
            others += [by for by, _ in self._given.get(name, ())]
            if any(one.is_under(above) for one in others):
                return  # the same name may be another variable
            if above.kind == "Filter":
                self._take(binding, list(conjuncts(above.details)))
            if above.kind in {"Expand(All)", "Expand(Into)"}:
                binding.neighbours += [end for start, end in above.hops if start == name]
            below = above

    def _take_as_neighbour(self, binding: _Binding) -> None:
        """Treat a node from a label scan as one that a hop finds, if it has to be next to a known node."""
        is_scan = binding.operator.kind in operators.LABEL_SCANS and not self._anchors(binding)
        if is_scan and any(map(self._is_known, binding.neighbours)):
            binding.tests.append(frozenset(binding.labels))
            binding.labels, binding.is_hop = (), True

    def _is_known(self, name: str) -> bool:
        anchors = [self._anchors(one) for one in self._origins(name)]
        return bool(anchors) and all(anchors)

    def _take(self, binding: _Binding, conditions: Sequence[str]) -> None:
        binding.tests += [test[1] for one in conditions if (test := label_test(one)) and test[0] == binding.name]
        self._take_keys(binding, conditions)

    def _take_keys(self, binding: _Binding, conditions: Sequence[str]) -> None:
        for condition in conditions:
            found = _KEY_CONDITION.fullmatch(condition)
            if found is None or found[1] != binding.name:
                continue
            if key := self._key(found[4], is_list=found[3] == "IN"):
                binding.keys.setdefault(found[2], key)

    def _key(self, text: str, *, is_list: bool) -> Key | None:
        """Return the source of the values that a key is compared with, or None if it is unknown beforehand."""
        found = re.fullmatch(rf"(\$?)({NAME})((?:\.\w+)*)(\[\d+\])?", text.strip())
        if found is None or found[2].startswith("`"):
            return None
        path = tuple(filter(None, found[3].split("."))) + (("*",) if found[4] or is_list else ())
        if found[1]:
            is_literal = re.match(r"auto(?:int|string|double|list|float)_\d+$", found[2])
            return None if is_literal else Key(found[2], path)
        sources = self._given.get(found[2], [])
        if len(sources) != 1 or found[2] in self._bindings:
            return None
        rows = self._key(sources[0][1], is_list=True)
        return replace(rows, path=(*rows.path, *path)) if rows else None

    def _anchors(self, binding: _Binding) -> list[tuple[str, Key]]:
        """Return the watched labels and keys that identify a binding's nodes."""
        one_of = [next(iter(test)) for test in binding.tests if len(test) == 1]
        labels = [*(binding.labels if len(binding.labels) == 1 else ()), *one_of]
        keys = ((label, self._watches.nodes.get(label, "")) for label in labels)
        return [(label, binding.keys[key]) for label, key in keys if key in binding.keys]

    # Reads.

    def _read(self, one: Operator) -> None:
        names = self._bindings
        if one.items:
            for expression, _ in one.items:
                if one.kind == "ProduceResults" or not re.fullmatch(NAME, expression):
                    self._reads.append((one, reads_of(expression, names, self._paths)))
        elif one.details:
            conditions = conjuncts(one.details) if one.kind == "Filter" else [one.details]
            self._reads += [(one, reads_of(self._beside_key(each), names, self._paths)) for each in conditions]

    def _beside_key(self, condition: str) -> str:
        """Return a condition without its comparison of the key, if that identifies its node."""
        found = _KEY_CONDITION.fullmatch(condition)
        origins = self._origins(found[1]) if found else []
        keys = [{self._watches.nodes[label] for label, _ in self._anchors(one)} for one in origins]
        return found[4] if found and keys and all(found[2] in each for each in keys) else condition

    def _resolve(self) -> None:
        for start, end, types, is_long in self._hops:
            self._depend_on_hops(start, end, types, is_long=is_long)
        content: dict[str, set[Operator]] = {}
        for one, reads in self._reads:
            for source in (source for name in reads.content for source in self._sources(name)):
                content.setdefault(source, set()).add(one)
            for name, types in reads.degrees:
                self._depend_on_hops(name, name, types, is_long=False)
            for name, labels in reads.labels:
                for binding in (each for source in self._sources(name) for each in self._bindings[source]):
                    self._depend_on_labels(binding, labels)
                    anchors = self._anchors(binding)
                    if anchors and labels - {label for label, _ in anchors}:
                        content.setdefault(binding.name, set()).add(one)
        for binding in (one for bindings in self._bindings.values() for one in bindings):
            self._depend_on_binding(binding, content.get(binding.name, set()))

    def _sources(self, name: str, seen: frozenset[str] = frozenset()) -> Iterator[str]:
        """Yield a name and the names that it is an alias of."""
        if name in seen or name not in self._bindings:
            return
        yield name
        for binding in self._bindings[name]:
            if binding.source:
                yield from self._sources(binding.source, seen | {name})

    def _origins(self, name: str) -> list[_Binding]:
        """Return all places that bind a name, or its sources, to nodes; none if there may be other places."""
        origins: list[_Binding] = []
        for source in self._sources(name):
            for one in self._bindings[source]:
                if source in self._opaque or (one.source and one.source not in self._bindings):
                    return []
                if not one.source:
                    origins.append(one)
        return origins

    def _depend_on_hops(self, start: str, end: str, types: tuple[str, ...], *, is_long: bool) -> None:
        fine: list[tuple[str, Key]] = []
        for name in () if is_long else dict.fromkeys((start, end)):
            anchors = [self._anchors(one) for one in self._origins(name)]
            if anchors and all(anchors):
                fine = [each[0] for each in anchors]
                break
        for kind in types:
            for label, key in fine:
                key_property = self._watches.nodes.get(label, "")
                self._depend(Dependency(kind, is_type=True, label=label, key_property=key_property, key=key))
            if not fine:
                self._depend(Dependency(kind, is_type=True, why="a path of any length" if is_long else _NO_END))

    def _depend_on_labels(self, binding: _Binding, labels: frozenset[str]) -> None:
        """Depend on nodes that join or leave a label; relationships cover nodes that a hop finds."""
        if binding.source or self._anchors(binding):
            return
        if binding.labels and self._watches.nodes.keys() >= set(binding.labels):
            return  # any change of its nodes counts
        for label in sorted(labels):
            if not binding.is_hop or label not in self._watches.nodes:
                self._depend(Dependency(label, why=f"{_shown(binding.name)}'s label is a condition"))

    def _depend_on_binding(self, binding: _Binding, readers: set[Operator]) -> None:
        if binding.source:
            return
        if anchors := self._anchors(binding):
            if not readers and self._is_told_by_hops(binding):
                return
            label, key = anchors[0]
            self._depend(Dependency(label, key_property=self._watches.nodes.get(label, ""), key=key))
            return
        if binding.labels:
            for label in binding.labels:
                key_property = self._watches.nodes.get(label, "key")
                why = f"{_shown(binding.name)}.{key_property} is not given by a parameter"
                self._depend(Dependency(label, why=why))
            return
        if not readers and not binding.is_seek:
            return  # its relationships cover its existence
        tests = [test for test in binding.tests if all(label in self._watches.nodes for label in test)]
        if not tests:
            label = next((label for test in binding.tests for label in test), "")
            is_joined = len(self._bindings[binding.name]) > 1
            why = "is found in several ways at once" if is_joined else "may be any node: give it a label"
            self._gap(_unwatched_label(label) if label else f"{_shown(binding.name)} {why}")
            return
        for label in sorted(tests[0]):
            key_property = self._watches.nodes[label]
            shown = way_to_result(
                binding.name, binding.operator, key_property, readers, partial(self._is_one_thing, binding)
            )
            why = (
                f"{_shown(binding.name)} is filtered, limited or aggregated, or the rows do not show its {key_property}"
            )
            self._depend(Dependency(label, key_property=key_property, shown=shown, why="" if shown else why))

    def _is_told_by_hops(self, binding: _Binding) -> bool:
        """Return whether relationships cover a node's coming and going, since each row with it has one."""
        is_watched = all(self._watches.relationships.issuperset(types) for _, _, types, _ in self._hops)
        return is_watched and (
            bool(binding.neighbours) or binding.operator.kind in {"Expand(All)", "OptionalExpand(All)"}
        )

    def _is_one_thing(self, binding: _Binding, name: str) -> bool:
        """Return whether a name means the same everywhere; the node's own name may be given once more."""
        bound, given = sum(not one.source for one in self._bindings.get(name, ())), len(self._given.get(name, ()))
        return bound + given <= 1 or (name == binding.name and bound <= 1 and given <= 1)

    def _depend(self, one: Dependency) -> None:
        if one.is_type and one.name not in self._watches.relationships:
            self._gap(f"relationships {one.name}: watch_relationship({one.name!r})")
        elif not one.is_type and one.name not in self._watches.nodes:
            self._gap(_unwatched_label(one.name))
        else:
            self._found.setdefault(one)


_BINDERS: Final[tuple[tuple[frozenset[str], Callable[[_Analysis, Operator], None]], ...]] = (
    (operators.LABEL_SCANS, _Analysis.scan_labels),
    (operators.SEEKS | operators.INDEX_SCANS, _Analysis.scan_index),
    (operators.ID_SEEKS, _Analysis.seek_id),
    (operators.EXPANDS, _Analysis.hop),
    (frozenset(("ShortestPath",)), _Analysis.find_path),
    (operators.TYPE_SCANS | operators.TYPE_INDEXES, _Analysis.scan_type),
    (operators.COUNTS, _Analysis.count),
    (operators.PROJECTIONS, _Analysis.project),
    (operators.COMPARES, _Analysis.compare),
    (frozenset(("RollUpApply",)), _Analysis.roll_up),
    (operators.OTHERS, _Analysis.keep),
)


def _check_text(cypher: str) -> None:
    for name in re.findall(r"(?<![\w.:$])([A-Za-z]+)(?:\.\w+)?\s*\(", cypher):
        if name.lower() in CLOCKS:
            raise NotUnderstood(f"{name}(), which is another one each time")


def _matched(pattern: re.Pattern[str], one: Operator) -> re.Match[str]:
    found = pattern.fullmatch(one.details.strip())
    if found is None:
        raise NotUnderstood(unknown(one))
    return found


def _unwatched_label(label: str) -> str:
    return f"nodes {label}: watch({label!r}, key=…)"


def _shown(name: str) -> str:
    return "a node without a name" if re.fullmatch(r"anon_\d+", name) else name
