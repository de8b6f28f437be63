"""The outside checker: compares what readers got with what a writer did to the graph.

It uses the cache's public clients, and knows nothing of formats, lease records and messages. `writer` increments
versions in the graph and invalidates, `reader` records what reads return, `oracle` compares the two; `monitor` runs all
of it in one process. The demo, the soak test and ``refresher doctor --watch`` use it.
"""
