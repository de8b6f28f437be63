import numpy as np
import pytest

from refresher.demo.graph.rmat import MAX_SCALE, RmatGraph, rmat, rmat_with_at_least


def pairs(graph: RmatGraph) -> set[tuple[int, int]]:
    return set(zip(graph.sources.tolist(), graph.targets.tolist(), strict=True))


def test_the_demo_s_graph_has_the_requested_numbers_of_vertices_and_edges() -> None:
    graph = rmat_with_at_least(20_000, 200_000, seed=1)
    assert graph.vertices >= 20_000
    assert graph.edges == len(graph.sources) == len(graph.targets) == 200_000
    assert len(pairs(graph)) == 200_000


def test_no_self_loops_and_every_vertex_has_an_edge() -> None:
    graph = rmat(10, 4, seed=3)
    assert not (graph.sources == graph.targets).any()
    assert set(graph.sources.tolist()) | set(graph.targets.tolist()) == set(range(graph.vertices))


def test_the_same_seed_gives_the_same_graph_and_another_seed_another_graph() -> None:
    assert pairs(rmat(8, 4, seed=5)) == pairs(rmat(8, 4, seed=5))
    assert pairs(rmat(8, 4, seed=5)) != pairs(rmat(8, 4, seed=6))


def test_degrees_are_skewed() -> None:
    graph = rmat(14, 8, seed=1)
    degrees = np.sort(np.bincount(np.concatenate([graph.sources, graph.targets])))
    assert degrees[-1] > 20 * np.median(degrees)
    top_percent = degrees[-len(degrees) // 100 :].sum() / degrees.sum()
    assert top_percent > 0.08  # 1 % of the vertices hold over 8 % of the ends; evenly spread it would be some 1.5 %


def test_vertex_ids_are_not_correlated_with_degrees() -> None:
    graph = rmat(13, 8, seed=1)
    degrees = np.bincount(np.concatenate([graph.sources, graph.targets]))
    assert abs(np.corrcoef(np.arange(graph.vertices), degrees)[0, 1]) < 0.05


@pytest.mark.parametrize("scale", [0, -1, MAX_SCALE + 1])
def test_a_scale_out_of_bounds_is_refused(scale: int) -> None:
    with pytest.raises(ValueError, match="scale must be from 1 to 30"):
        rmat(scale, 1, seed=1)


def test_more_edges_than_a_scale_yields_are_refused() -> None:
    with pytest.raises(ValueError, match="13 distinct edges don't come up at scale 2"):
        rmat(2, 13 / 4, seed=1)


@pytest.mark.parametrize(("vertices", "edges"), [(1, 10), (0, 0), (100, 99), (-5, 10)])
def test_impossible_numbers_of_vertices_and_edges_are_refused(vertices: int, edges: int) -> None:
    with pytest.raises(ValueError, match="at least 2 vertices"):
        rmat_with_at_least(vertices, edges, seed=1)


def test_a_dense_graph_gets_a_greater_scale() -> None:
    graph = rmat_with_at_least(4, 100, seed=1)
    assert graph.edges == 100
    assert graph.vertices >= 11  # 10 vertices have 90 pairs
