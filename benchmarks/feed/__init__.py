"""The graph's change feed: its delay, its price for writers, its throughput, and the loads that it saves."""
