"""The in-process tier, and the cache of unchanged entries. Nothing here reads entries from Redis."""
