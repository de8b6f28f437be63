"""The discrete-event simulation: a model goes in, an outcome comes out. What is compiled needs numba."""
