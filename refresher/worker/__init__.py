"""The worker as Celery sees it: app, task, runtime. The refresh itself is in `flow`."""
