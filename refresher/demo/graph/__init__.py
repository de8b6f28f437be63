"""The demo's graph: generated, loaded into a database, and the popularity of its persons.

Nothing here knows about the cache or starts a server.
"""
