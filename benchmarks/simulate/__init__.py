"""`python -m benchmarks simulate`: the same policy in a discrete-event simulation, for what no machine here can hold.

Imported on demand: numba is needed by what is compiled.
"""
