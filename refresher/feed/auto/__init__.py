"""Tags that a worker finds for ``@query(…, tags="auto")``: of what a load reads, by the plans of its Cypher."""
