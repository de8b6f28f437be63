"""From a positive decision to a message in the broker: suppression, claim, backpressure, publication."""
