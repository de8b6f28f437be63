"""A Promela model of the lease record, and Spin's results: ``python -m tests.model``."""
