"""Inspection and health for operators: status, doctor, look-ups of keys, dead keys, a worker's health.

Also what these need: checks at startup, permissions, scans of the keys, probes, HTTP. Nothing here loads values, and
nothing prints.
"""
