"""Benchmarks: what a read costs, measured against other clients in one run on one machine.

Nothing here is imported by a reader or a worker. The other caches come with the extra ``bench``; one that is not
installed is shown as such.
"""
