"""Decoded entries in this process: the in-process tier, and a cache of decodings.

Nothing here reads entries from Redis or decides on a refresh.
"""
