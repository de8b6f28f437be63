from itertools import pairwise

import numpy as np
import pytest

from refresher.demo.graph.popularity import EXPONENT, SHARES, hot_keys
from refresher.demo.graph.social_graph import SocialGraph


@pytest.fixture(scope="module")
def graph() -> SocialGraph:
    return SocialGraph.generated(2_000, 12_000, seed=4)


def hashable(key: tuple[str, dict[str, object]]) -> tuple[str, tuple[tuple[str, object], ...]]:
    return key[0], tuple(sorted(key[1].items()))


def test_the_hot_keys_are_bounded_distinct_and_of_the_graph(graph: SocialGraph) -> None:
    keys, weights = hot_keys(graph, 1, keys=100)
    assert 95 <= len(keys) == len(weights) <= 100
    assert len({hashable(key) for key in keys}) == len(keys)
    assert {query for query, _ in keys} == set(SHARES)
    assert {name for _, params in keys for name in params.values()} <= set(graph.names)


def test_weights_are_zipf_within_a_query_and_sum_to_the_shares(graph: SocialGraph) -> None:
    keys, weights = hot_keys(graph, 1, keys=100)
    assert sum(weights) == pytest.approx(1.0)
    for query, share in SHARES.items():
        of_query = np.array([weight for (q, _), weight in zip(keys, weights, strict=True) if q == query])
        assert of_query.sum() == pytest.approx(share)
        assert of_query == pytest.approx(of_query[0] / np.arange(1, len(of_query) + 1) ** EXPONENT)


def test_keys_of_higher_degree_are_requested_more_often(graph: SocialGraph) -> None:
    degree = dict(zip(graph.names, graph.degrees.tolist(), strict=True))
    profiles = [params["name"] for query, params in hot_keys(graph, 1)[0] if query == "profile"]
    degrees = [degree[str(name)] for name in profiles]
    assert all(earlier >= later for earlier, later in pairwise(degrees))
    assert np.mean(degrees) > 1.5 * graph.degrees.mean()


def test_a_tiny_graph_has_fewer_keys() -> None:
    graph = SocialGraph(["a", "b"], np.array([0]), np.array([1]))
    keys, _ = hot_keys(graph, 1)
    assert len(keys) == 2 * len(SHARES)
    assert ("shortest_path", {"source": "a", "target": "b"}) in keys
