"""The refresh flow, from acquire to commit. It imports neither Celery nor the graph driver, and opens no connection.

Policy, renewals, outcomes, events and dead letters are here too. Dependencies are passed in (`ports`), including the
Redis client of `dead_letters`.
"""
