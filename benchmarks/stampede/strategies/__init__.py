"""The strategies in the comparison: four classic ones, ours, and other caches' (`variants` lists them).

Nothing here runs or times a workload; `recorder` marks what a read did.
"""
