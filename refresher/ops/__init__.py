"""Inspection and health for operators: status, doctor, look-ups of keys, dead keys, a worker's health.

Also their parts: startup checks, permissions, scans of keys, probes, HTTP. Nothing here loads values or prints.
"""
