"""A Promela model of the lease record, and what Spin says of it: ``python -m tests.model``."""
