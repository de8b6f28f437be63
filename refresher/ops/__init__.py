"""Inspection and health for operators: status, doctor, dead keys, a worker's health, and HTTP for them.

Nothing here loads values, and nothing prints.
"""
