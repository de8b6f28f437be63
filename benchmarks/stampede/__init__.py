"""`stampede`: four classic strategies, this project's readers and other caches, on one key that expires, in one run.

`strategies` are compared; `origin` is what they spare, and counts loads; `steady` and `simultaneous` are the workloads.
It imports no other benchmark.
"""
