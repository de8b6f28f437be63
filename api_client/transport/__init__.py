"""Commands to Redis and their replies: connections, breakers, scripts, Sentinel, Cluster, pub/sub.

Each topology is routed in one place without I/O (`routing`, `cluster`), which the sync and the async link carry out.
Nothing here decides on a refresh or decodes a value; a query's name serves errors only.
"""
