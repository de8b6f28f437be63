"""Caches in the comparison, all with the interface of `competitors.competitor`.

Nothing here measures or knows about a benchmark.
"""
