"""``python -m benchmarks topology``: whether refreshing hubs earlier pays, and what it costs.

Two settings on the same graph. In the first there is no grace: an expired key is a miss that its reader pays for, and
the reader's own process refreshes, early or late, under a lock. In the second stale values are served meanwhile, and
Celery workers refresh. Each without early refresh, with a plain β and with one that grows with the degree.
"""
