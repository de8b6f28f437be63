"""Agreement of readers and workers of two releases: keys, formats, lease steps, live versions, the decision.

Nothing here connects, waits or reads settings.
"""
