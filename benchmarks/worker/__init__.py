"""``python -m benchmarks worker``: what a refresh costs a worker, beside a Celery task that does nothing.

A group a module; `worker.run` runs them.
"""
