"""`hits`: the cost of reads and entries, against redis-py and other caches. `hits.run` lists the groups.

It imports no other benchmark; shared parts are in `competitors`, `reports` and `apparatus`.
"""
