"""Graph of acquaintances with the degrees that the LDBC social network benchmark gives its persons, in numpy.

Its generator draws each person's number of friends from the degree distribution of Facebook in 2011 (mean 190, median
99, nobody above 5,000), scaled so that the mean of n persons is n^(0.512 − 0.028·log10 n): a smaller network has fewer
friends each. The distribution is kept here by a few of its percentiles, with straight lines between them.

What is left out: the generator joins persons who are alike (place, interests), which makes clusters. Here friends are
matched at random, so degrees are right and triangles are rare.

Sources: O. Erling et al., "The LDBC Social Network Benchmark: Interactive Workload", SIGMOD 2015, and its generator;
J. Ugander, B. Karrer, L. Backstrom, C. Marlow, "The Anatomy of the Facebook Social Graph", arXiv:1111.4503, 2011.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

FACEBOOK_MEAN: Final = 190.0
# Percentiles of the number of friends on Facebook, as the generator's own table has them.
# Its mean is 197, and 190 is what the generator divides by.
_PERCENTS: Final = (0, 10, 20, 30, 40, 50, 60, 70, 75, 80, 85, 90, 95, 97, 98, 99, 100)
_FRIENDS: Final = (1, 10, 25, 42, 66, 99, 139, 204, 236, 283, 349, 447, 674, 781, 863, 1029, 5000)


@dataclass(frozen=True, slots=True)
class FriendGraph:
    """Friendships, each once, between different persons; some persons may have none.

    ``sources`` and ``targets`` are int64 arrays of one shape, (friendships,), with ids from 0 to persons - 1 and
    ``sources < targets``.
    """

    persons: int
    sources: NDArray[np.int64]
    targets: NDArray[np.int64]


def mean_friends(persons: int) -> float:
    """Return the mean number of friends in a network of so many persons: n^(0.512 − 0.028·log10 n)."""
    return float(persons ** (0.512 - 0.028 * math.log10(persons)))


def drawn_friends(persons: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw a number of friends for each person: an int64 array (persons,), each from 0 to persons - 1."""
    on_facebook = np.interp(rng.random(persons) * 100, _PERCENTS, _FRIENDS)
    scaled = np.rint(on_facebook * mean_friends(persons) / FACEBOOK_MEAN)
    return np.minimum(scaled, persons - 1).astype(np.int64)


def friend_graph(persons: int, *, seed: int) -> FriendGraph:
    """Draw a network. The same arguments give the same one.

    Each person has as many open ends as friends were drawn; ends are paired at random. A pair of one person with
    himself, or one that is there already, is dropped, which costs the greatest hubs a few friends.

    Raises:
        ValueError: fewer than 2 persons.
    """
    if persons < 2:
        raise ValueError(f"persons must be at least 2, got {persons}")
    rng = np.random.default_rng(seed)
    ends = np.repeat(np.arange(persons, dtype=np.int64), drawn_friends(persons, rng))
    rng.shuffle(ends)
    half = len(ends) // 2
    one, other = ends[:half], ends[half : 2 * half]
    low, high = np.minimum(one, other), np.maximum(one, other)
    keys = np.unique((low * persons + high)[low != high])
    return FriendGraph(persons, keys // persons, keys % persons)
