"""``python -m benchmarks topology``: the benefit and the cost of refreshing hubs earlier.

Two settings are compared on the same graph. In the first there is no grace: an expired key is a miss for its reader,
and the reader's own process refreshes, early or late, under a lock. In the second, stale values are served while Celery
workers refresh. Each setting is measured without early refresh, with a plain β, and with one that grows with the
degree.
"""
