"""``python -m benchmarks topology``: whether refreshing hubs earlier pays, and what it costs.

Two settings on the same graph. In the first there is no grace: an expired key is a miss that its reader pays for, and
the reader's own process refreshes, early or late, under a lock. In the second stale values are served meanwhile, and
Celery workers refresh. Each without early refresh, with a plain β and with one that grows with the degree.

`topology.plan` says what is compared, and in which order, `topology.trial` runs one trial, `topology.own_process` and
`topology.on_workers` are the two settings, `topology.results` makes figures of it. It imports no other benchmark.
"""
