"""The strategies that are compared: four classic ones, ours, and other caches' (`variants` lists them).

Nothing here runs or times a workload; what a read did is marked by `recorder`.
"""
