"""Benchmarks of this project beside redis-py, Celery and other caches, in one run on one machine. Not in the wheel.

Nothing that ships imports this package. A competitor that is not installed is left out, with a note.
"""
