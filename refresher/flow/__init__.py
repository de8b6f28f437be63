"""A refresh from acquire to commit. Imports neither Celery nor the graph driver, and opens no connection.

Policy, renewals, outcomes, events and dead letters are here too. Its dependencies are passed in (`ports`), the Redis
client of `dead_letters` as well.
"""
