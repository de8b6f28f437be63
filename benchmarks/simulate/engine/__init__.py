"""The discrete-event simulation, from a model to an outcome. Compiled functions need numba."""
