"""Loading from Neo4j: driver, transactions, deadlines, values. Nothing here knows the lease."""
