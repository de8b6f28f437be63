"""Random graphs with the degrees of real ones, for the demo and the benchmarks: `rmat`, and `snb`'s social network."""
