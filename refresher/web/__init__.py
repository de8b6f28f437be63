"""The status page: ``refresher status --web``. Beside Flower's, since Flower has no way in for pages of others.

It needs the cache, of which Flower knows nothing, and may ask for refreshes, which Flower's users may not.
"""
