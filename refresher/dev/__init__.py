"""``refresher dev``: a whole system for development on this machine, whose worker restarts when a file changes.

What belongs here: what only that command does. The servers are those of `refresher.embedded`.
"""
