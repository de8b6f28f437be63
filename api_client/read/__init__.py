"""A read from its requirements to its value: evaluation, waits, coalescing, batches; one core for sync and async.

Nothing here opens a connection or knows a broker.
"""
