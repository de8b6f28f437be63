"""`stampede`: four classic strategies, this project's readers and other caches on one key that expires.

`strategies` are compared; `origin` counts the loads that they should spare; `steady` and `simultaneous` are workloads.
It imports no other benchmark.
"""
