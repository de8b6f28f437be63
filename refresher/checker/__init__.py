"""The outside checker: holds what readers were told against what a writer did to the graph.

It knows nothing of how the cache works. `writing` raises versions in the graph and invalidates, `reading` notes what
readers are told, `judging` compares the two; `watching` does it all in one process. The demo, the soak test and
``refresher doctor --watch`` use the same parts.
"""
