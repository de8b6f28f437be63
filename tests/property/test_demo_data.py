import contextlib
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from refresher.demo.errors import DemoError
from refresher.demo.graph.edge_list import read_edge_list
from refresher.demo.graph.rmat import rmat_with_at_least

ids = st.text(st.characters(categories=["L", "N", "P"], exclude_characters='#%"\t,'), min_size=1, max_size=20)


def read(content: bytes) -> list[tuple[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "edges"
        path.write_bytes(content)
        return list(read_edge_list(path))


@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=30), st.sampled_from("\t,"))
def test_a_written_edge_list_is_read_back_unchanged(edges: list[tuple[str, str]], delimiter: str) -> None:
    text = "".join(f"{source}{delimiter}{target}\n" for source, target in edges)
    assert read(text.encode()) == edges


@given(st.binary(max_size=300))
def test_any_bytes_are_read_as_edges_or_raise_a_demo_error(content: bytes) -> None:
    with contextlib.suppress(DemoError):
        assert all(source and target for source, target in read(content))


@given(st.integers(2, 200), st.integers(0, 600), st.integers(0, 2**32))
def test_rmat_has_at_least_the_requested_vertices_and_exactly_the_requested_edges(
    vertices: int, more: int, seed: int
) -> None:
    # Three edges per vertex: with fewer, few scales give that many vertices an edge.
    edges = 3 * vertices + more
    graph = rmat_with_at_least(vertices, edges, seed=seed)
    assert graph.vertices >= vertices
    pairs = set(zip(graph.sources.tolist(), graph.targets.tolist(), strict=True))
    assert len(pairs) == edges
    assert all(source != target for source, target in pairs)
    assert {end for pair in pairs for end in pair} == set(range(graph.vertices))
