"""The status page (``refresher status --web``). Its only state is an hour of samples in memory.

It is separate from Flower, which has no extension point for pages, no access to the cache, and read-only users.
"""
