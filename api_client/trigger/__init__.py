"""From a positive decision to a message in the broker: suppression, claim, backpressure, publication.

Also manual refreshes. Nothing here reads or decodes an entry.
"""
