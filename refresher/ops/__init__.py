"""Inspection and health for operators: status, doctor, dead keys, a worker's health. Nothing here loads."""
