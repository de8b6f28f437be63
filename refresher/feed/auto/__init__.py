"""Automatic tags, for ``@query(…, tags="auto")``, which a worker derives from the plans of a load's Cypher."""
