"""The protocol that readers and workers of two releases share: keys, formats, lease steps, versions, the decision.

Nothing here connects, waits or reads settings.
"""
