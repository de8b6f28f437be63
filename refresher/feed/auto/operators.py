"""Operators of a plan: those with known dependencies, and their tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from refresher.feed.auto.expressions import words

LABEL_SCANS: Final = words(
    "NodeByLabelScan UnionNodeByLabelsScan IntersectionNodeByLabelsScan SubtractionNodeByLabelsScan"
)
SEEKS: Final = words("NodeUniqueIndexSeek NodeIndexSeek")
INDEX_SCANS: Final = words(
    "NodeIndexScan NodeIndexSeekByRange NodeUniqueIndexSeekByRange NodeIndexContainsScan NodeIndexEndsWithScan"
)
ID_SEEKS: Final = words("NodeByIdSeek NodeByElementIdSeek")
EXPANDS: Final = words(
    "Expand(All) Expand(Into) OptionalExpand(All) OptionalExpand(Into) VarLengthExpand(All) VarLengthExpand(Into) "
    "VarLengthExpand(Pruning) VarLengthExpand(Pruning,BFS) VarLengthExpand(Pruning,All) "
    "VarLengthExpand(Pruning,BFS,All)"
)
TYPE_SCANS: Final = words(
    "DirectedRelationshipTypeScan UndirectedRelationshipTypeScan DirectedUnionRelationshipTypesScan "
    "UndirectedUnionRelationshipTypesScan"
)
TYPE_INDEXES: Final = words(
    "DirectedRelationshipIndexScan UndirectedRelationshipIndexScan DirectedRelationshipIndexSeek "
    "UndirectedRelationshipIndexSeek DirectedRelationshipIndexSeekByRange UndirectedRelationshipIndexSeekByRange"
)
COMPARES: Final = words("TriadicSelection NodeHashJoin Argument")
COUNTS: Final = words("NodeCountFromCountStore RelationshipCountFromCountStore")
KEEPS_ROWS: Final = words("CacheProperties Sort PartialSort Eager")
GROUPS: Final = words("EagerAggregation OrderedAggregation Distinct OrderedDistinct ProduceResults")
"""Operators whose rows contain only the values of their items."""
SHOWS: Final = KEEPS_ROWS | GROUPS | words("Projection Union Optional RollUpApply")
"""Operators above which each of their rows is still visible, alone or within another."""
JOINS: Final = words("Apply CartesianProduct NodeHashJoin ValueHashJoin")
ROW_BY_ROW: Final = KEEPS_ROWS | EXPANDS | JOINS | words("Filter Projection")
"""Operators above which a row with a failed condition is gone, with all that it would have contributed."""
OF_FIRST_CHILD: Final = words(
    "SemiApply AntiSemiApply LetSemiApply LetAntiSemiApply SelectOrSemiApply SelectOrAntiSemiApply "
    "LetSelectOrSemiApply LetSelectOrAntiSemiApply RollUpApply"
)
"""Operators for which the same is true of the rows of their first child only."""
PROJECTIONS: Final = GROUPS | words("Projection Unwind")
OTHERS: Final = (
    KEEPS_ROWS
    | JOINS
    | OF_FIRST_CHILD
    | words("Filter Top PartialTop Limit Skip Union OrderedUnion Optional Argument EmptyRow EmptyResult")
)


@dataclass(slots=True, eq=False)
class Operator:
    """An operator; ``items`` are a projection's expressions with their names, ``hops`` the pairs of neighbours."""

    kind: str
    details: str
    parent: Operator | None
    place: int = 0
    children: list[Operator] = field(default_factory=list)
    items: list[tuple[str, str]] = field(default_factory=list)
    hops: list[tuple[str, str]] = field(default_factory=list)

    def is_under(self, above: Operator) -> bool:
        """Return whether this operator is ``above`` itself, or below it in the plan."""
        return self is above or (self.parent is not None and self.parent.is_under(above))

    def walk(self) -> Iterator[Operator]:
        """Yield this operator and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()


def tree_of(plan: Mapping[str, Any], parent: Operator | None = None, place: int = 0) -> Operator:
    """Return the operator tree of a plan in the driver's form."""
    one = Operator(
        str(plan["operatorType"]).partition("@")[0], str((plan.get("args") or {}).get("Details") or ""), parent, place
    )
    one.children = [tree_of(child, one, place) for place, child in enumerate(plan.get("children") or ())]
    return one


def unknown(one: Operator) -> str:
    """Describe an operator with unknown dependencies."""
    what = {
        "AllNodesScan": "all nodes, whatever their label: name one",
        "ProcedureCall": f"the procedure {one.details.partition('(')[0]}",
    }.get(one.kind)
    return what or (
        "relationships of every type: name one"
        if "AllRelationships" in one.kind
        else " ".join(f"the plan's {one.kind} {one.details}".split())[:100]
    )
