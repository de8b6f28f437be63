"""Transport of commands to Redis and their replies: connections, breakers, scripts, Sentinel, Cluster, pub/sub.

The routing of each topology is free of I/O (`routing`, `cluster`); the sync and the async link carry it out. Nothing
here decides on a refresh or decodes a value; a query's name is needed only for errors.
"""
