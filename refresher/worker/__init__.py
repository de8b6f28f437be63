"""The worker as Celery sees it: app, task, processes (begin, end, runtime), slots, versions, its link to Redis.

What a refresh does is in `flow`, what is loaded in `graph`; changes to Celery itself are in `celery_fixes` alone.
"""
