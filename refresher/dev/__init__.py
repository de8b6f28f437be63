"""``refresher dev``: a whole system for development on this machine, whose worker restarts when a file changes.

Only code of that command belongs here. The servers are those of `refresher.embedded`.
"""
