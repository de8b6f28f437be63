"""Caches that are compared: one class each, all with the interface of `competitors.competitor`.

Nothing here measures or knows a benchmark.
"""
