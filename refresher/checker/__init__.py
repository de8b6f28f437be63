"""The outside checker, which compares the values that readers got with a writer's changes of the graph.

It uses the cache's public clients, and knows nothing about formats, lease records and messages. `writer` increments
versions in the graph and invalidates, `reader` records the results of reads, `oracle` compares the two, and `monitor`
runs everything in one process. The demo, the soak test and ``refresher doctor --watch`` use it.
"""
