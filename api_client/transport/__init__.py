"""Commands to Redis and their replies: connections, scripts, Sentinel, Cluster, pub/sub.

Nothing here decides on a refresh or decodes a value; a query's name serves errors only.
"""
