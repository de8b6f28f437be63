"""Commands to Redis and their replies: connections, scripts, Sentinel, Cluster, pub/sub. Knows no query."""
