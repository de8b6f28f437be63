"""From a positive decision to a message in the broker: suppression, claim, backpressure, publication.

Nothing here reads or decodes an entry.
"""
