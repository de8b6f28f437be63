"""Events, metrics and spans of a reader, and their back ends: Prometheus, OpenTelemetry.

Nothing here reads entries or triggers refreshes.
"""
