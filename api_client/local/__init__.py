"""Decoded entries in this process: the in-process tier, and those whose bytes came from Redis before.

Nothing here reads entries from Redis or decides on a refresh.
"""
