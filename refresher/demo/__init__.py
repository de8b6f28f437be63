"""The demo: servers, worker and readers under load, a kill in the middle, a checker.

Nothing else that ships imports it, but for its command; benchmarks use its graph.
"""
