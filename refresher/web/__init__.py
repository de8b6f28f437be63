"""The status page: ``refresher status --web``. No state of its own but an hour of samples in memory.

It stands beside Flower, which has no extension point for pages, no access to the cache, and read-only users.
"""
