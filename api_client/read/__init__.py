"""A read from its requirements to its value: evaluation, waits, coalescing; one core for sync and async."""
