"""The social network's degrees: those of the published distribution, scaled by the published mean."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.topology.snb import drawn_friends, friend_graph, mean_friends


@pytest.mark.parametrize(("persons", "mean"), [(1_000, 19.2), (10_000, 39.8), (1_000_000, 115.9)])
def test_the_mean_follows_the_published_formula(persons: int, mean: float) -> None:
    # 10,000: 10^(4 · (0.512 − 0.112)) = 10^1.6; the others in the same way.
    assert mean_friends(persons) == pytest.approx(mean, rel=0.01)


def test_drawn_degrees_have_the_published_mean_and_median() -> None:
    drawn = drawn_friends(50_000, np.random.default_rng(1))
    mean = mean_friends(50_000)
    assert drawn.mean() == pytest.approx(197 / 190 * mean, rel=0.02)  # the generator's own is as much above the formula
    assert np.median(drawn) == pytest.approx(99 / 190 * mean, rel=0.03)
    assert drawn.max() <= 5_000 / 190 * mean + 1


def test_a_network_keeps_nearly_all_drawn_friends() -> None:
    graph = friend_graph(5_000, seed=2)
    degrees = np.bincount(np.concatenate([graph.sources, graph.targets]), minlength=5_000)
    assert degrees.mean() == pytest.approx(197 / 190 * mean_friends(5_000), rel=0.05)


@given(persons=st.integers(2, 400), seed=st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_each_friendship_joins_two_persons_and_is_there_once(persons: int, seed: int) -> None:
    graph = friend_graph(persons, seed=seed)
    assert (graph.sources < graph.targets).all()
    pairs = set(zip(graph.sources.tolist(), graph.targets.tolist(), strict=True))
    assert len(pairs) == len(graph.sources)
    assert all(0 <= end < persons for pair in pairs for end in pair)
