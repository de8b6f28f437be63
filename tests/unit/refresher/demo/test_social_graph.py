import re
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

import numpy as np
import pytest
from neo4j.exceptions import ServiceUnavailable

from refresher.demo.errors import DemoError
from refresher.demo.graph.social_graph import SocialGraph, load, person_name

if TYPE_CHECKING:
    from neo4j import Driver


def test_a_generated_graph_has_unique_human_names_that_depend_only_on_the_seed() -> None:
    graph = SocialGraph.generated(500, 3_000, seed=2)
    assert graph.persons >= 500
    assert graph.edges == 3_000
    assert len(set(graph.names)) == graph.persons
    assert all(re.fullmatch(r"[A-Z][a-z]+ [A-Z][a-z]+ \d{5}", name) for name in graph.names)
    assert SocialGraph.generated(500, 3_000, seed=2).names == graph.names


def test_the_number_in_a_person_s_name_may_exceed_five_digits() -> None:
    assert person_name(0).endswith(" 00000")
    assert person_name(123_456).endswith(" 123456")


def test_degrees_count_both_directions() -> None:
    graph = SocialGraph(["a", "b", "c", "d"], np.array([0, 0, 1]), np.array([1, 2, 0]))
    assert graph.degrees.tolist() == [3, 2, 1, 0]


def test_edges_are_ordered_for_the_load() -> None:
    graph = SocialGraph.generated(100, 500, seed=1)
    pairs = list(zip(graph.sources.tolist(), graph.targets.tolist(), strict=True))
    assert pairs == sorted(set(pairs))


def test_an_edge_list_s_ids_are_the_names(tmp_path: Path) -> None:
    path = tmp_path / "deps.tsv"
    path.write_text("# package\tdepends_on\nflask\tclick\nflask\tflask\nclick\tcolorama\nflask\tclick\nclick\tflask\n")
    graph = SocialGraph.from_edge_list(path)
    assert graph.names == ["flask", "click", "colorama"]
    assert list(zip(graph.sources.tolist(), graph.targets.tolist(), strict=True)) == [(0, 1), (1, 0), (1, 2)]


def test_an_edge_list_of_self_loops_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "loops.tsv"
    path.write_text("a\ta\n")
    with pytest.raises(DemoError, match="no edge between two different ids"):
        SocialGraph.from_edge_list(path)


class FakeSession:
    """Takes every statement; counts are what a test says."""

    def __init__(self, counts: list[int]) -> None:
        self.counts, self.statements = counts, list[str]()

    def session(self, *, database: str | None) -> "FakeSession":
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, statement: str, **_: object) -> "FakeSession":
        self.statements.append(statement)
        if statement.startswith("UNWIND") and -1 in self.counts:
            raise ServiceUnavailable("the server went away")
        return self

    def consume(self) -> None:
        pass

    def single(self, *, strict: bool) -> dict[str, int]:
        return {"n": self.counts.pop(0)}


def load_into(session: FakeSession) -> None:
    load(cast("Driver", session), None, SocialGraph(["a", "b"], np.array([0]), np.array([1])))


def test_indexes_are_made_before_anything_is_written() -> None:
    session = FakeSession([0, 2, 1])
    load_into(session)
    kinds = [statement.split()[0] for statement in session.statements]
    assert kinds == ["MATCH", "CREATE", "CREATE", "UNWIND", "UNWIND", "MATCH", "MATCH"]


def test_a_graph_half_written_is_an_error() -> None:
    with pytest.raises(DemoError, match="wrote 2 persons and 1 edges, but the database counts 2 and 0"):
        load_into(FakeSession([0, 2, 0]))


def test_a_driver_s_error_becomes_a_demo_error_with_its_cause() -> None:
    with pytest.raises(DemoError, match="loading stopped after 0 of 3: the server went away") as caught:
        load_into(FakeSession([0, -1]))
    assert isinstance(caught.value.__cause__, ServiceUnavailable)
