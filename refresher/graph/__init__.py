"""Loading from Neo4j: driver, transactions, deadlines, values, failures.

Nothing here runs a lease step; of the lease it knows the kinds of a bookmark's fault alone.
"""
