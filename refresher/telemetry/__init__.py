"""Metrics and spans of a worker, and their back ends. Nothing here decides or refreshes."""
