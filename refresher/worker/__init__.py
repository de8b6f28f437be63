"""The worker in Celery: app, task, processes (start, end, runtime), slots, versions, link to Redis.

The refresh is in `flow`, loads from the graph in `graph`; changes to Celery itself are only in `celery_fixes`.
"""
