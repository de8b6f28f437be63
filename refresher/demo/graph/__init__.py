"""The demo's graph: generated or read from a file, loaded into a database, and the popularity of its persons.

Nothing here knows the cache or starts a server.
"""
