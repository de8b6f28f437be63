"""Metrics and spans of a worker, and their back ends."""
