"""`worker`: the cost of a refresh to a worker, compared with a no-op Celery task. `worker.run` runs the groups.

It imports no other benchmark.
"""
