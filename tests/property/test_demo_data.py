from hypothesis import given
from hypothesis import strategies as st

from refresher.demo.graph.rmat import rmat_with_at_least


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
