"""From a positive decision to a message in the broker: suppression, claim, backpressure, publication.

Also manual refreshes, and the log of decisions for `explain`. Nothing here reads or decodes an entry.
"""
