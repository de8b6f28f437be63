"""`worker`: the cost of a refresh to a worker, beside a Celery task that does nothing. `worker.run` runs the groups.

It imports no other benchmark.
"""
