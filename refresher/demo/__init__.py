"""The demo: servers, worker and readers under load, a kill in the middle, a checker.

Only its command imports it in what ships; benchmarks use its graph.
"""
