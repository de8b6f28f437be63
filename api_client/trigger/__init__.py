"""Triggers: suppression, claim, backpressure and publication, from a positive decision to a message in the broker.

Manual refreshes too. Nothing here reads or decodes an entry.
"""
