"""The read path: requirements, evaluation, waits, coalescing and batches, with one core for sync and async.

Nothing here opens a connection or knows about a broker.
"""
