"""What readers and workers of two releases must agree on: keys, formats, lease steps, live versions, the decision.

Nothing here connects, waits or reads settings.
"""
