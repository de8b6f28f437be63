"""Graph of acquaintances with the degrees that the LDBC social network benchmark gives its persons, in numpy.

Its generator draws each person's number of friends from the degree distribution of Facebook in 2011 (mean 190, median
99, nobody above 5,000), scaled so that the mean of n persons is n^(0.512 − 0.028·log10 n): a smaller network has fewer
friends per person. Here a few percentiles stand for the distribution, with straight lines between them.

The generator joins similar persons (by place, interests), which makes clusters. That is left out: here friends are
matched at random, so degrees are right but triangles are rare.

Sources: O. Erling et al., "The LDBC Social Network Benchmark: Interactive Workload", SIGMOD 2015, and its generator;
J. Ugander, B. Karrer, L. Backstrom, C. Marlow, "The Anatomy of the Facebook Social Graph", arXiv:1111.4503, 2011.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

_FACEBOOK_MEAN: Final = 190.0
# Percentiles of the number of friends on Facebook, as in the generator's table, whose mean is 197, while the generator
# divides by 190.
_PERCENTS: Final = (0, 10, 20, 30, 40, 50, 60, 70, 75, 80, 85, 90, 95, 97, 98, 99, 100)
_FRIENDS: Final = (1, 10, 25, 42, 66, 99, 139, 204, 236, 283, 349, 447, 674, 781, 863, 1029, 5000)


def friend_graph(persons: int, *, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw friendships, each once, as sources and targets: ids from 0 to persons - 1, ``sources < targets``.

    Each person has as many open ends as drawn friends, and ends are paired at random. A pair of a person with himself,
    or one that already exists, is dropped, which costs the greatest hubs a few friends.
    """
    rng = np.random.default_rng(seed)
    ends = np.repeat(np.arange(persons, dtype=np.int64), _drawn_friends(persons, rng))
    rng.shuffle(ends)
    half = len(ends) // 2
    one, other = ends[:half], ends[half : 2 * half]
    low, high = np.minimum(one, other), np.maximum(one, other)
    keys = np.unique((low * persons + high)[low != high])
    return keys // persons, keys % persons


def _drawn_friends(persons: int, rng: np.random.Generator) -> NDArray[np.int64]:
    on_facebook = np.interp(rng.random(persons) * 100, _PERCENTS, _FRIENDS)
    mean_friends: float = persons ** (0.512 - 0.028 * math.log10(persons))
    scaled = np.rint(on_facebook * mean_friends / _FACEBOOK_MEAN)
    return np.asarray(np.minimum(scaled, persons - 1), dtype=np.int64)
