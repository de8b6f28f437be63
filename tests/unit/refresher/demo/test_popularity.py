from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from refresher.demo.graph.popularity import SHARES, Popularity
from refresher.demo.graph.social_graph import SocialGraph


@pytest.fixture(scope="module")
def graph() -> SocialGraph:
    return SocialGraph.generated(2_000, 12_000, seed=4)


def hashable(key: tuple[str, dict[str, object]]) -> tuple[str, tuple[tuple[str, object], ...]]:
    return key[0], tuple(sorted(key[1].items()))


def test_the_hot_keys_are_bounded_distinct_and_of_the_graph(graph: SocialGraph) -> None:
    keys = Popularity(graph, 1, keys=100).keys
    assert 95 <= len(keys) <= 100
    assert len({hashable(key) for key in keys}) == len(keys)
    assert {query for query, _ in keys} == set(SHARES)
    assert {name for _, params in keys for name in params.values()} <= set(graph.names)


def test_draws_are_hot_keys_only(graph: SocialGraph) -> None:
    popularity = Popularity(graph, 1, keys=40)
    hot = {hashable(key) for key in popularity.keys}
    assert {hashable(popularity.draw()) for _ in range(5_000)} == hot


def test_draws_follow_the_weights(graph: SocialGraph) -> None:
    popularity = Popularity(graph, 1, keys=40)
    draws = 100_000
    counts = Counter(hashable(popularity.draw()) for _ in range(draws))
    for key, weight in zip(popularity.keys, popularity.weights, strict=True):
        deviation = (draws * weight * (1 - weight)) ** 0.5
        assert abs(counts[hashable(key)] - draws * weight) < 5 * deviation


def test_weights_are_zipf_within_a_query_and_sum_to_the_shares(graph: SocialGraph) -> None:
    popularity = Popularity(graph, 1, keys=100, exponent=1.0)
    assert popularity.weights.sum() == pytest.approx(1.0)
    for query, share in SHARES.items():
        of_query = np.array([w for (q, _), w in zip(popularity.keys, popularity.weights, strict=True) if q == query])
        assert of_query.sum() == pytest.approx(share)
        assert of_query == pytest.approx(of_query[0] / np.arange(1, len(of_query) + 1))


def test_higher_degrees_are_asked_for_more(graph: SocialGraph) -> None:
    degree = dict(zip(graph.names, graph.degrees.tolist(), strict=True))
    profiles = [params["name"] for query, params in Popularity(graph, 1).keys if query == "profile"]
    degrees = [degree[str(name)] for name in profiles]
    assert all(earlier >= later for earlier, later in pairwise(degrees))
    assert np.mean(degrees) > 1.5 * graph.degrees.mean()


def test_seeds(graph: SocialGraph) -> None:
    def drawn(seed: int, reader_seed: int) -> list[tuple[str, dict[str, object]]]:
        popularity = Popularity(graph, seed, reader_seed=reader_seed)
        return [popularity.draw() for _ in range(50)]

    assert drawn(1, 0) == drawn(1, 0)
    assert drawn(1, 0) != drawn(1, 1)
    assert drawn(1, 0) != drawn(2, 0)
    assert Popularity(graph, 1, reader_seed=7).keys == Popularity(graph, 1, reader_seed=8).keys


def test_a_drawn_key_is_the_caller_s_own(graph: SocialGraph) -> None:
    popularity = Popularity(graph, 1, keys=4)
    for _ in range(20):
        popularity.draw()[1]["name"] = "spoiled"
    assert all("spoiled" not in params.values() for _, params in popularity.keys)


def test_a_tiny_graph_has_fewer_keys() -> None:
    graph = SocialGraph(["a", "b"], np.array([0]), np.array([1]))
    keys = Popularity(graph, 1).keys
    assert len(keys) == 2 * len(SHARES)
    assert ("shortest_path", {"source": "a", "target": "b"}) in keys


def test_wrong_numbers_are_refused(graph: SocialGraph) -> None:
    with pytest.raises(ValueError, match="keys must be at least 4"):
        Popularity(graph, 1, keys=3)
    with pytest.raises(ValueError, match="exponent must be >= 0"):
        Popularity(graph, 1, exponent=-0.1)
    with pytest.raises(ValueError, match="at least 2 persons"):
        Popularity(SocialGraph(["a"], np.array([], dtype=np.int64), np.array([], dtype=np.int64)), 1)
