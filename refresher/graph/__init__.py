"""Loading from Neo4j: driver, transactions, time limits of loads (`thread_limits`), values, failures.

Nothing here runs a lease step; of the lease it only knows the kinds of bookmark faults.
"""
